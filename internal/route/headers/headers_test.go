package headers

import (
	"net/http"
	"strings"
	"testing"

	"millrace/internal/wire/field"
)

func anything(string, Op) string { return "" }

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "a{client_ip}b", "{{client_ip}", `{"group":"default"}`, "{", "}", "{x}", "{client_ip"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		r, faults := Compile(Options{Set: map[string]string{"X-A": value}}, anything, []string{"client_ip"})
		if len(faults) > 0 {
			return
		}
		h := http.Header{}
		r.Apply(field.Map(h), func(string) string { return "192.0.2.1" })
		if len(h["X-A"]) != 1 {
			t.Fatalf("%q gives %q", value, h)
		}
		if !strings.Contains(value, "{") && h.Get("X-A") != value {
			t.Errorf("%q became %q", value, h.Get("X-A"))
		}
	})
}

func TestApply(t *testing.T) {
	r, faults := Compile(Options{
		Set:    map[string]string{"x-real-ip": "{client_ip}", "Nel": `{"a":{"b":1}}`, "X-Brace": "{{client_ip}", "X-Bad": "{bad}"},
		Add:    map[string]string{"Via": "x"},
		Remove: []string{"cookie"},
	}, anything, []string{"client_ip", "bad"})
	if len(faults) > 0 || !r.Varies() {
		t.Fatal(faults)
	}
	h := http.Header{"Cookie": {"a"}, "Via": {"old"}, "X-Real-Ip": {"forged"}, "X-Bad": {"old"}}
	r.Apply(field.Map(h), func(name string) string { return map[string]string{"client_ip": "192.0.2.1", "bad": "a\r\nb"}[name] })
	for name, want := range map[string]string{
		"Cookie": "", "Via": "old x", "X-Real-Ip": "192.0.2.1", "Nel": `{"a":{"b":1}}`, "X-Brace": "{client_ip}", "X-Bad": "",
	} {
		if got := strings.Join(h[name], " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
