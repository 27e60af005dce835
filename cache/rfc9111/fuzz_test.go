package rfc9111

import (
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

func FuzzParseControl(f *testing.F) {
	for _, s := range []string{
		"", "max-age=60, public", `no-cache="a, b", private`, `x="a\"b", max-age="6\0"`, "max-age =1", "no-cache no-store",
		`a="b, c`, "a=b c=d", "\xff=\x00", `max-age="1"2, ,,`, "max-age=1\nno-store", "max-age=600+30;x, content=\"a\";y",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines := strings.Split(s, "\n")
		for _, c := range []Control{ParseControl(lines), parseSurrogate(lines, "x")} {
			for _, d := range c.directives[:min(len(c.directives), 20)] {
				if d.name == "" || d.name != field.Lower(d.name) || strings.ContainsAny(d.name, ",= \t") {
					t.Errorf("a directive named %q", d.name)
				}
				seconds, ok := c.Seconds(d.name)
				if !ok || seconds < 0 || seconds > forever || !c.Has(d.name) {
					t.Errorf("%q: %v %v", d.name, seconds, ok)
				}
				for _, name := range c.Fields(d.name) {
					if !field.Token(name) {
						t.Errorf("a field named %q", name)
					}
				}
			}
		}
		// What a plain reader would take for no-store is never overlooked.
		if !strings.ContainsAny(s, "\"=") && strings.Contains(", "+s+",", ", no-store,") && !strings.Contains(s, "\n") &&
			!ParseControl(lines).Has("no-store") {
			t.Errorf("%q: no-store is overlooked", s)
		}
		if c, ok := parseTarget(lines); ok {
			for _, d := range c.directives {
				if d.name != field.Lower(d.name) {
					t.Errorf("a key named %q", d.name)
				}
			}
		}
	})
}

func FuzzDate(f *testing.F) {
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "0", "Sun,", ",", "Sun, 31 Feb 1994 08:49:37 GMT",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseDate(s, noon)
		if !ok {
			return
		}
		// Written again in the preferred form it is the same date.
		again, ok := ParseDate(got.Format(http.TimeFormat), noon)
		if got.Year() <= 9999 && (!ok || !again.Equal(got)) {
			t.Errorf("%q is %v, then %v %v", s, got, again, ok)
		}
		// Strictness: one byte less is not a date.
		if _, ok := ParseDate(s[1:], noon); ok {
			t.Errorf("%q is one as well", s[1:])
		}
	})
}

// FuzzJudge holds what must be true of any response whatsoever.
func FuzzJudge(f *testing.F) {
	f.Add(200, "Cache-Control: max-age=60\nAge: 3\nDate: Sun, 22 Nov 2026 11:59:00 GMT", "", false)
	f.Add(200, "Cache-Control: no-store, must-understand, max-age=5\nConnection: a\nA: 1", "Authorization: x", true)
	f.Add(404, "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\nVary: a, *", "Cache-Control: no-store", false)
	f.Add(599, "Cache-Control: private=\"a\", s-maxage=1\nSet-Cookie: a=b\nSurrogate-Control: max-age=5;x", "", true)
	f.Add(503, "Cdn-Cache-Control: max-age=99999999999\nExpires: 0\nAge: 99999999999", "", false)
	f.Fuzz(func(t *testing.T, status int, response, request string, loose bool) {
		asked := lines(request)
		q := &message.Request{Method: http.MethodGet, Path: "/", Fields: field.Of(asked)}
		h := lines(response)
		minute := time.Minute
		p := &Policy{Targets: []string{"Cdn-Cache-Control"}, Surrogate: true, Device: "x", SetCookie: loose, TTL: time.Minute}
		if loose {
			p.Force, p.AnyStatus, p.Authorized = &minute, true, true
		}
		facts, reason := p.Judge(q, status, h, noon, noon.Add(time.Second))
		if reason == "" {
			stored(t, p, status, h, facts)
			c, _ := p.control(h)
			if len(asked["Authorization"]) > 0 && !loose && !c.Has("public") && !c.Has("s-maxage") && !c.Has("must-revalidate") {
				t.Error("an answer for one user is stored")
			}
		} else if facts.Use(Demand{lenient: true, maxStale: forever}, noon, false) != Validate || facts.Age < 0 || facts.Fresh != 0 ||
			facts.OnError(field.Lines{{Name: "Cache-Control", Value: "stale-if-error=99999999999"}}, noon.Add(time.Minute), false) {
			t.Errorf("refused by %q with %+v", reason, facts)
		}
		kept, fresh := p.Storable(h, noon), p.Freshen(lines(request), h, noon)
		for name := range hopByHop {
			if kept[name] != nil || fresh[name] != nil {
				t.Errorf("%s is kept", name)
			}
		}
		for name := range options(h) {
			if kept[name] != nil && !essential[name] {
				t.Errorf("%s is kept, which Connection names", name)
			}
		}
		if _, ok := dateField(kept, "Date", noon); !ok {
			t.Errorf("Date is %q", kept["Date"])
		}
		Conditional(new(field.Lines), []http.Header{kept, fresh})
		for _, name := range []string{"Accept-Encoding", "Accept-Language", "Cookie"} {
			if got := Normal(name, q.Fields, nil); (got == "") != (len(asked[name]) == 0) {
				t.Errorf("%s is normally %q", name, got)
			}
			Normal(name, q.Fields, []string{"de"})
		}
	})
}

// stored checks what was found storable.
func stored(t *testing.T, p *Policy, status int, h http.Header, f Facts) {
	c, _ := p.control(h)
	if c.Has("no-store") && (!c.Has("must-understand") || !understood[status]) {
		t.Error("no-store is stored")
	}
	if c.whole("private") {
		t.Error("private is stored")
	}
	if status < 200 || status == 206 || status == 304 || status > 599 {
		t.Errorf("%d is stored", status)
	}
	if f.Age < 0 || f.Fresh < 0 || f.Source == "" || f.Received.IsZero() || f.StaleIfError < 0 || f.StaleWhileRevalidate < 0 {
		t.Errorf("facts %+v", f)
	}
	for _, d := range []time.Duration{-time.Hour, 0, time.Hour, 1 << 62} {
		now := f.Received.Add(d)
		if f.CurrentAge(now) < f.Age {
			t.Errorf("%v later the age is %v", d, f.CurrentAge(now))
		}
		use := f.Use(Demand{}, now, false)
		if f.NoCache && use != Validate || use == Serve && f.TTL(now) <= 0 || f.TTL(now) > 0 && !f.NoCache && use != Serve {
			t.Errorf("%v later, with %v left, use is %d", d, f.TTL(now), use)
		}
	}
}

// lines makes a header of text, as net/http would.
func lines(text string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && field.Token(name) {
			h.Add(textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t"))
		}
	}
	return h
}
