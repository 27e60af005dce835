package netset

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func finder(t testing.TB, header string, trusted ...string) *Finder {
	t.Helper()
	set, err := Parse(trusted)
	if err != nil {
		t.Fatal(err)
	}
	return NewFinder(set, header)
}

func TestOf(t *testing.T) {
	list := []string{"10.0.0.0/8", "unix", "2001:db8::1"}
	for _, c := range []struct {
		name, header, peer string
		values             []string
		want               string
	}{
		{"no proxy", "", "192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"},
		{"one proxy", "", "10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "", "10.0.0.1:5", []string{"203.0.113.1, 198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		{"two lines", "", "10.0.0.1:5", []string{"203.0.113.1", "198.51.100.1"}, "198.51.100.1"},
		{"a forged first entry", "", "10.0.0.1:5", []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1"},
		{"all trusted", "", "10.0.0.1:5", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"nothing said", "", "10.0.0.1:5", nil, "10.0.0.1"},
		{"empty entries", "", "10.0.0.1:5", []string{" , 198.51.100.1,, "}, "198.51.100.1"},
		{"no address", "", "10.0.0.1:5", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"no address before a trusted one", "", "10.0.0.1:5", []string{"unknown, 10.0.0.2"}, "10.0.0.2"},
		{"a port", "", "10.0.0.1:5", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		{"IPv6", "", "[2001:db8::1]:5", []string{"2001:db8::2"}, "2001:db8::2"},
		{"IPv6 in brackets", "", "[2001:db8::1]:5", []string{"[2001:db8::2]"}, "2001:db8::2"},
		{"IPv6 with a port", "", "[2001:db8::1]:5", []string{"[2001:db8::2]:99"}, "2001:db8::2"},
		{"IPv4 as IPv6", "", "[::ffff:10.0.0.1]:5", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"a UNIX socket", "", "@", []string{"198.51.100.1"}, "198.51.100.1"},
		{"another field", "X-Real-IP", "10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		{"Forwarded", "forwarded", "10.0.0.1:5", []string{`for=192.0.2.9;proto=http, by=x; For="[2001:db8::9]:47" ;host=a`}, "2001:db8::9"},
		{"Forwarded, hidden", "forwarded", "10.0.0.1:5", []string{"for=192.0.2.9, for=_hidden"}, "10.0.0.1"},
		{"Forwarded without for", "forwarded", "10.0.0.1:5", []string{"for=192.0.2.9, proto=https"}, "10.0.0.1"},
	} {
		f := finder(t, c.header, list...)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		r.Header[f.Header()] = c.values
		if got := f.Of(r); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
}

func TestNobodyTrusted(t *testing.T) {
	f := finder(t, "")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "@"
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	if got := f.Of(r); got.IsValid() || f != nil {
		t.Error(got)
	}
}

// FuzzNamed: whatever a client of a trusted proxy claims, the client is the
// address that the proxy has added.
func FuzzNamed(f *testing.F) {
	f.Add("127.0.0.1", false)
	f.Add(`for="`, true)
	f.Add(`10.0.0.1,"`, false)
	f.Fuzz(func(t *testing.T, claim string, standard bool) {
		header, own := "", "198.51.100.1"
		if standard {
			header, own = forwarded, "for=198.51.100.1"
		}
		find := finder(t, header, "10.0.0.0/8")
		if got := find.Named(netip.MustParseAddr("10.0.0.1"), claim+", "+own); got != netip.MustParseAddr("198.51.100.1") {
			t.Errorf("%q leads to %s", claim, got)
		}
	})
}

// TestQuotedCommas: what a client puts into a field that its proxy quotes names nobody.
func TestQuotedCommas(t *testing.T) {
	for list, want := range map[string][2]string{
		`for=203.0.113.9;host="x,for=10.0.0.1;a=b";proto=https`:  {`for=203.0.113.9;host="x,for=10.0.0.1;a=b";proto=https`, ``},
		`for=1.1.1.1, for=203.0.113.9;host="x,y"`:                {`for=203.0.113.9;host="x,y"`, `for=1.1.1.1`},
		`for=1.1.1.1;host="open, for=203.0.113.9`:                {`for=203.0.113.9`, `for=1.1.1.1;host="open`},
		`for=1.1.1.1, for=203.0.113.9;host="a\",for=10.0.0.1;b"`: {`for=203.0.113.9;host="a\",for=10.0.0.1;b"`, `for=1.1.1.1`},
	} {
		entry, rest, ok := lastEntry(list)
		if !ok || entry != want[0] || rest != want[1] {
			t.Errorf("%s: %q and %q, want %q", list, entry, rest, want)
		}
	}
}
