package frame_test

import (
	"regexp"
	"strings"
	"testing"

	"millrace/websocket/frame"
)

const plainAnswer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"

func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		offer  string // lines, separated by |
		window uint8  // 0: declined
		answer string // behind plainAnswer
	}{
		{offer: ""},
		{offer: "permessage-deflate", window: 15},
		{offer: "permessage-deflate; client_max_window_bits", window: 15}, // Chromium and Firefox
		{offer: "permessage-deflate; client_max_window_bits=10", window: 15},
		{offer: "permessage-deflate; server_no_context_takeover; client_no_context_takeover", window: 15},
		{offer: "permessage-deflate; server_max_window_bits=15", window: 15, answer: "; server_max_window_bits=15"},
		{offer: "permessage-deflate; server_max_window_bits=9", window: 9, answer: "; server_max_window_bits=9"},
		{offer: "permessage-deflate; server_max_window_bits=8", window: 8, answer: "; server_max_window_bits=8"},
		{offer: "permessage-deflate ;\tserver_max_window_bits = 12 ; client_max_window_bits", window: 12, answer: "; server_max_window_bits=12"},
		{offer: "permessage-deflate;server_max_window_bits=10;client_max_window_bits=8", window: 10, answer: "; server_max_window_bits=10"},
		{offer: `permessage-deflate; server_max_window_bits="11"`, window: 11, answer: "; server_max_window_bits=11"},
		{offer: `permessage-deflate; server_max_window_bits="1\3"`, window: 13, answer: "; server_max_window_bits=13"},

		// What cannot be honoured.
		{offer: "permessage-deflate; server_max_window_bits"},
		{offer: "permessage-deflate; server_max_window_bits="},
		{offer: "permessage-deflate; server_max_window_bits=7"},
		{offer: "permessage-deflate; server_max_window_bits=16"},
		{offer: "permessage-deflate; server_max_window_bits=09"},
		{offer: "permessage-deflate; server_max_window_bits=+9"},
		{offer: "permessage-deflate; server_max_window_bits=-9"},
		{offer: "permessage-deflate; server_max_window_bits=9.0"},
		{offer: "permessage-deflate; server_max_window_bits=1 0"},
		{offer: "permessage-deflate; server_max_window_bits=99999999999999999999"},
		{offer: "permessage-deflate; server_max_window_bits=265"},
		{offer: `permessage-deflate; server_max_window_bits="10`},
		{offer: `permessage-deflate; server_max_window_bits=10"`},
		{offer: `permessage-deflate; server_max_window_bits="`},
		{offer: `permessage-deflate; server_max_window_bits=""`},
		{offer: `permessage-deflate; server_max_window_bits="10\"`},
		{offer: `permessage-deflate; server_max_window_bits=" 10"`},
		{offer: "permessage-deflate; client_max_window_bits=7"},
		{offer: "permessage-deflate; client_max_window_bits=16"},
		{offer: "permessage-deflate; client_max_window_bits=x"},
		{offer: "permessage-deflate; server_no_context_takeover=1"},
		{offer: "permessage-deflate; client_no_context_takeover="},
		{offer: "permessage-deflate; unknown"},
		{offer: "permessage-deflate; Server_No_Context_Takeover"},
		{offer: "permessage-deflate;"},
		{offer: "permessage-deflate; ; client_max_window_bits"},
		{offer: "permessage-deflate=1"},
		{offer: "Permessage-Deflate"},
		{offer: "permessage-deflate-x"},
		{offer: "x-webkit-deflate-frame"},
		{offer: "permessage-bzip2; level=9"},

		// The same parameter twice.
		{offer: "permessage-deflate; client_max_window_bits; client_max_window_bits=10"},
		{offer: "permessage-deflate; server_max_window_bits=10; server_max_window_bits=10"},
		{offer: "permessage-deflate; server_no_context_takeover; server_no_context_takeover"},

		// One after the other.
		{
			offer:  "permessage-deflate; server_max_window_bits=7, permessage-deflate; server_max_window_bits=10, permessage-deflate",
			window: 10, answer: "; server_max_window_bits=10",
		},
		{offer: "permessage-foo; x=10, permessage-deflate", window: 15},
		{offer: `foo; x="a, permessage-deflate; server_max_window_bits=9, b", permessage-deflate`, window: 15},
		{offer: `foo; x="\", permessage-deflate; server_max_window_bits=9, b", permessage-deflate`, window: 15},
		{offer: `foo; x="never closed, permessage-deflate`},
		{offer: ", ,permessage-deflate,,", window: 15},
		{offer: "foo|permessage-deflate; server_max_window_bits=12|permessage-deflate", window: 12, answer: "; server_max_window_bits=12"},
		{offer: `foo; x="never closed|permessage-deflate`, window: 15},
	} {
		var lines []string
		if c.offer != "" {
			lines = strings.Split(c.offer, "|")
		}
		p, answer := frame.Negotiate(lines)
		want, wantAnswer := frame.Params{On: c.window > 0, Window: c.window}, ""
		if c.window > 0 {
			wantAnswer = plainAnswer + c.answer
		}
		if p != want || answer != wantAnswer {
			t.Errorf("%s\n got %+v %q\nwant %+v %q", c.offer, p, answer, want, wantAnswer)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("permessage-deflate; server_max_window_bits=7", "permessage-deflate; client_max_window_bits")
	f.Add(`foo; x="a,b\"", permessage-deflate; server_max_window_bits="10"`, "")
	f.Add("permessage-deflate;server_no_context_takeover;client_no_context_takeover;server_max_window_bits=8", ",")
	valid := regexp.MustCompile(`^` + plainAnswer + `(; server_max_window_bits=(8|9|1[0-5]))?$`)
	f.Fuzz(func(t *testing.T, first, second string) {
		p, answer := frame.Negotiate([]string{first, second})
		if !p.On {
			if p != (frame.Params{}) || answer != "" {
				t.Fatalf("declined with %+v %q", p, answer)
			}
		} else if !valid.MatchString(answer) || p.Window < 8 || p.Window > 15 {
			t.Fatalf("agreed with %+v %q", p, answer)
		}
		if p.On {
			if again, same := frame.Negotiate([]string{answer}); again != p || same != answer {
				t.Fatalf("%q is answered with %q", answer, same)
			}
		}
		if q, other := frame.Negotiate([]string{"unknown; x=1, permessage-deflate; y", first, second}); q != p || other != answer {
			t.Fatalf("behind others: %+v %q, want %+v %q", q, other, p, answer)
		}
		if !strings.ContainsAny(first, `"\`) {
			if q, other := frame.Negotiate([]string{first + "," + second}); q != p || other != answer {
				t.Fatalf("in one line: %+v %q, want %+v %q", q, other, p, answer)
			}
		}
	})
}
