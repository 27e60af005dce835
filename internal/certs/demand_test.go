package certs

import (
	"fmt"
	"testing"
	"time"

	"millrace/internal/server"
)

// The names of one domain use up its share, and no other's; time gives it back.
func TestLimits(t *testing.T) {
	l, now := newLimits(), time.Unix(1e9, 0)
	asked := 0
	for i := range 100 {
		if l.allow(fmt.Sprintf("n%d.thief.example", i), now) {
			asked++
		}
	}
	if asked != domainAtOnce {
		t.Errorf("%d names of one domain were asked about", asked)
	}
	if !l.allow("shop.good.example", now) || !l.allow("other.example", now) {
		t.Error("another domain is kept from its share")
	}
	if l.allow("N1.Thief.example.", now) || !l.allow("n1.thief.example", now.Add(domainEvery)) {
		t.Error("the share is not that of five seconds")
	}
	for i := range 2 * mostDomains {
		l.allow(fmt.Sprintf("a.d%d.example", i), now)
	}
	if len(l.of) > mostDomains {
		t.Errorf("%d domains are remembered", len(l.of))
	}
	if l.allow("a.new.example", now.Add(time.Hour)); len(l.of) > mostDomains/2 {
		t.Errorf("%d domains are remembered after an hour", len(l.of))
	}
}

// Addresses get the only kind of certificate that there is for them.
func TestProfile(t *testing.T) {
	for _, c := range []struct {
		profile, ca string
		names       []string
		want        string
	}{
		{"", server.CALetsEncrypt, []string{"a.example"}, ""},
		{"", server.CALetsEncrypt, []string{"a.example", "203.0.113.5"}, "shortlived"},
		{"", server.CALetsEncryptStaging, []string{"2001:db8::1"}, "shortlived"},
		{"", "https://ca.example/dir", []string{"203.0.113.5"}, ""},
		{"tlsserver", server.CALetsEncrypt, []string{"203.0.113.5"}, "tlsserver"},
	} {
		o := server.AutoOptions{Profile: c.profile}
		if got := o.ProfileFor(c.ca, c.names); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
