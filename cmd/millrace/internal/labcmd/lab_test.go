package labcmd

import "testing"

func TestTarget(t *testing.T) {
	for in, want := range map[string]string{
		"http://h/p": "ws://h/p", "https://h/p": "wss://h/p", "ws://h/p": "ws://h/p", "": "",
	} {
		if got := (Request{WS: true}).target(in); got != want {
			t.Errorf("--ws %q: %q, want %q", in, got, want)
		}
		if got := (Request{}).target(in); got != in {
			t.Errorf("%q became %q", in, got)
		}
	}
}
