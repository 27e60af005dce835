package frame_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"millrace/websocket/frame"
)

func TestParseClose(t *testing.T) {
	for _, c := range []struct {
		payload string
		code    frame.Code
		reason  string
		bad     frame.Code
	}{
		{"", frame.NoStatus, "", 0},
		{"\x03", 0, "", frame.ProtocolError},
		{"\x03\xe8", frame.Normal, "", 0},
		{"\x03\xe8bye ✓", frame.Normal, "bye ✓", 0},
		{"\x03\xe8" + strings.Repeat("x", 123), frame.Normal, strings.Repeat("x", 123), 0},
		{"\x03\xe8\xce\xba\xed\xa0\x80", 0, "", frame.InvalidPayload},
		{"\x03\xe8\xe2\x82", 0, "", frame.InvalidPayload},
		{"\x00\x00\xff", 0, "", frame.ProtocolError},
	} {
		code, reason, err := frame.ParseClose([]byte(c.payload))
		if code != c.code || reason != c.reason || codeOf(t, err) != c.bad {
			t.Errorf("%q: %d %q, error %v", c.payload, code, reason, err)
		}
	}
}

// TestCodes goes through all codes there can be (RFC 6455, 7.4).
func TestCodes(t *testing.T) {
	allowed := func(code int) bool {
		switch {
		case code >= 3000 && code <= 4999:
			return true
		case code == 1004 || code == 1005 || code == 1006 || code == 1015:
			return false
		}
		return code >= 1000 && code <= 1014
	}
	for code := range 1 << 16 {
		payload := []byte{byte(code >> 8), byte(code)}
		got, _, err := frame.ParseClose(payload)
		if !allowed(code) {
			if codeOf(t, err) != frame.ProtocolError {
				t.Errorf("code %d: error %v", code, err)
			}
			if b := frame.AppendClose(nil, frame.Code(code), "why"); string(b) != "\x88\x00" {
				t.Errorf("code %d is sent: %x", code, b)
			}
			continue
		}
		if err != nil || int(got) != code {
			t.Errorf("code %d: %d, error %v", code, got, err)
		}
		if b := frame.AppendClose(nil, frame.Code(code), "why"); string(b) != "\x88\x05"+string(payload)+"why" {
			t.Errorf("code %d is sent as %x", code, b)
		}
	}
}

func TestAppendClose(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"", ""},
		{"so long", "so long"},
		{strings.Repeat("x", 123), strings.Repeat("x", 123)},
		{strings.Repeat("x", 124), strings.Repeat("x", 123)},
		{strings.Repeat("x", 122) + "é", strings.Repeat("x", 122)},
		{strings.Repeat("x", 120) + "\U0001f600", strings.Repeat("x", 120)},
		{strings.Repeat("x", 119) + "\U0001f600", strings.Repeat("x", 119) + "\U0001f600"},
		{"a\xff\xfeb", "a\ufffdb"},
	} {
		got := frame.AppendClose([]byte("before"), frame.GoingAway, c.reason)
		want := "before\x88" + string(rune(2+len(c.want))) + "\x03\xe9" + c.want
		if string(got) != want {
			t.Errorf("%q: got %q, want %q", c.reason, got, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	err := &frame.Error{Code: frame.TooBig, Reason: "message of more than 64KiB"}
	if got, want := err.Error(), "message of more than 64KiB (close code 1009)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseClose(f *testing.F) {
	f.Add([]byte("\x03\xe8bye"))
	f.Add([]byte("\x03\xed"))
	f.Add([]byte("\x0b\xb8\xff"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		payload = payload[:min(len(payload), frame.MaxControl)]
		code, reason, err := frame.ParseClose(payload)
		if err != nil {
			codeOf(t, err)
			return
		}
		if !utf8.ValidString(reason) {
			t.Fatalf("reason %q", reason)
		}
		got := frame.AppendClose(nil, code, reason)
		if !bytes.Equal(got[2:], payload) {
			t.Fatalf("%x is sent as %x", payload, got)
		}
		if len(payload) > 0 {
			wantCode, wantReason := ws.ParseCloseFrameData(payload)
			if int(wantCode) != int(code) || wantReason != reason {
				t.Fatalf("%d %q, gobwas says %d %q", code, reason, wantCode, wantReason)
			}
		}
	})
}
