package channels

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"millrace/websocket/frame"
)

func TestParseCommand(t *testing.T) {
	for text, want := range map[string]string{
		`{"subscribe":"a"}`:                     "",
		`{"subscribe":"a","unknown":{}}`:        "",
		`{"publish":"a","data":false,"id":"x"}`: "",
		``:                                      "not JSON",
		`[]`:                                    "type array",
		`"subscribe"`:                           "type string",
		`{}`:                                    "no command",
		`null`:                                  "no command",
		`{"ping":false}`:                        "no command",
		`{"ping":1}`:                            "ping is true or false",
		`{"subscribe":5}`:                       "subscribe is a string",
		`{"subscribe":"a","joins":"yes"}`:       "joins is true or false",
		`{"subscribe":"a","epoch":"e","offset":-1}`:             "offset is a whole number from 0 on",
		`{"subscribe":"a","epoch":"e"}`:                         "belong together",
		`{"subscribe":"a","offset":1}`:                          "belong together",
		`{"history":"a","offset":1}`:                            "belong together",
		`{"history":"a","limit":-1}`:                            "limit is negative",
		`{"subscribe":"a","publish":"b","data":1}`:              "more than one",
		`{"subscribe":"a"}{"subscribe":"b"}`:                    "not JSON",
		`{"subscribe":""}`:                                      "empty",
		`{"subscribe":"a\u0000"}`:                               "control character",
		`{"subscribe":"` + strings.Repeat("x", 256) + `"}`:      "256 bytes",
		`{"publish":"a"}`:                                       "needs data",
		`{"ping":true,"id":{}}`:                                 "id is",
		`{"ping":true,"id":true}`:                               "id is",
		`{"ping":true,"id":"` + strings.Repeat("x", 127) + `"}`: "id is",
	} {
		_, f := parseCommand([]byte(text))
		switch {
		case f == nil && want != "":
			t.Errorf("%s is accepted, want %q", text, want)
		case f != nil && (f.code != badRequest || want == "" || !strings.Contains(f.text, want)):
			t.Errorf("%s: %s %q, want %q", text, f.code, f.text, want)
		}
	}
}

// FuzzCommand has a session live through anything: it answers in JSON, or
// closes, and data goes through unchanged.
func FuzzCommand(f *testing.F) {
	for _, text := range []string{
		`{"subscribe":"news","id":1}`, `{"subscribe":"news","epoch":"e","offset":3,"joins":true}`, `{"unsubscribe":"news"}`,
		`{"publish":"news","data":{"a": [1, "\ud800"]}}`, `{"presence":"news","id":"\""}`, `{"history":"news","limit":2}`,
		`{"token":"a.b.c"}`, `{"ping":true}`, `{"publish":"\u2028","data":"\u2028"}`, `{"Subscribe":"x","SUBSCRIBE":"y"}`, `{"id":1e9}`, `[[[[`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cmd, fault := parseCommand([]byte(text))
		if fault == nil && !json.Valid([]byte(text)) {
			t.Fatalf("accepted: %q", text)
		}
		if fault == nil && cmd.Publish != nil && (!json.Valid(cmd.Data) || strings.ContainsAny(string(cmd.Data), "\r\n")) {
			t.Fatalf("data %q", cmd.Data)
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, everybody())
			defer r.close()
			k := r.connect("")
			k.say(`{"subscribe":"news"}`)
			r.turn(func() { r.c.message(k.s, frame.Text, []byte(text)) })
			said := k.heard()
			if len(said) == 0 && k.code == 0 {
				t.Errorf("%q is not answered", text)
			}
			for _, line := range said {
				if !strings.HasPrefix(line, "{") || strings.Contains(line, "\n") {
					t.Errorf("%q is answered with %q", text, line)
				}
				if fault != nil && !strings.HasPrefix(line, `{"error":`) {
					t.Errorf("%q, which is wrong (%s), is answered with %s", text, fault.text, line)
				}
			}
			k.leave()
		})
	})
}

// What not every client can read is not published.
func TestDepth(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2) }
	for data, deep := range map[string]bool{
		nested(maxDepth):                                              false,
		nested(maxDepth + 2):                                          true,
		`["` + strings.Repeat(`[\"`, 200) + `"]`:                      false,
		`["\\",` + nested(maxDepth) + `]`:                             true,
		`[` + strings.Repeat(`[],{},"a]",`, 200) + `1]`:               false,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth): false,
	} {
		_, f := parseCommand([]byte(`{"publish":"a","data":` + data + `}`))
		if (f != nil) != deep || f != nil && f.code != badRequest {
			t.Errorf("%.100s: %v", data, f)
		}
	}
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		w := httptest.NewRecorder()
		req := request(t, "POST", "/publish?channel=a", nested(100))
		req.Header.Set("Content-Type", "application/json")
		if r.c.ServePublish(w, req); w.Code != 400 {
			t.Errorf("over HTTP: %d", w.Code)
		}
	})
}
