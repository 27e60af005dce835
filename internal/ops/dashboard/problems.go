package dashboard

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// problemsID is the panel that comes first.
const problemsID = "problems"

// problems is what is wrong, and what to do about it.
func (d *Dashboard) problems(now time.Time, upstreams []Upstream, certs []Certificate, shared []Store) Panel {
	p := Panel{
		ID: problemsID, Title: "What is wrong", Empty: "Nothing that this server knows of.",
		Columns: []Column{{Key: "what", Name: "what"}, {Key: "do", Name: "what to do"}},
	}
	say := func(l Level, do, what string, args ...any) {
		if l == Bad { // what is worst comes first
			n := 0
			for n < len(p.Rows) && p.Rows[n].Level == Bad {
				n++
			}
			p.Rows = append(p.Rows[:n:n], append([]Row{{l, []any{fmt.Sprintf(what, args...), do}}}, p.Rows[n:]...)...)
			return
		}
		p.Rows = append(p.Rows, Row{l, []any{fmt.Sprintf(what, args...), do}})
	}
	s := &d.source
	if s.Draining != nil && s.Draining() {
		say(Bad, "", "the server takes no new requests: it is about to end")
	}
	if s.Maintenance != nil {
		if on, since := s.Maintenance(); on && since.IsZero() {
			say(Bad, "Open them below, or in the config (`maintenance.on`).", "all sites are closed for maintenance")
		} else if on {
			say(Bad, "Open them below, or with `millrace maintenance off`.", "all sites are closed for maintenance since %s", since.Local().Format(time.DateTime))
		}
	}
	if s.Unread != nil {
		if why := s.Unread(); why != "" {
			say(Bad, "`millrace check` says what is wrong; mend it, and reload.", "the config could not be reloaded, and the old one goes on serving: %s", brief(why))
		}
	}
	d.trafficProblems(say)
	upstreamProblems(say, upstreams)
	for _, c := range certs {
		if level, what := c.trouble(now); level != Fine {
			do := "`millrace certs` says what was tried."
			if c.File != "" {
				do = "Renew " + c.File + ": it is read again by itself."
			}
			say(level, do, "%s", what)
		}
	}
	for _, one := range shared {
		if one.Trouble != "" {
			what, do := one.down()
			say(Bad, do, "%s", what)
		}
	}
	if s.Troubles != nil {
		for _, t := range s.Troubles() {
			say(t.Level, t.Do, "%s", t.What)
		}
	}
	if s.Warning != nil {
		if text := s.Warning(); text != "" {
			say(Warn, "", "%s", text)
		}
	}
	return p
}

// upstreamProblems are servers that get no requests, and pools that have no room for more.
func upstreamProblems(say func(l Level, do, what string, args ...any), upstreams []Upstream) {
	waiting := map[string]bool{}
	for _, u := range upstreams {
		if u.Waiting > 0 && !waiting[u.Pool] {
			waiting[u.Pool] = true
			say(Warn, "Its servers have as many requests as `connections` allows: add servers, or raise it.", "%s wait for the upstream %s", count(u.Waiting, "request"), u.Pool)
		}
		switch state, level := u.state(); {
		case level == Bad && state == "down":
			say(Bad, "See why in the server's messages; it gets requests again when it answers.", "the upstream %s gets no requests: it fails", u.Address)
		case level == Bad:
			say(Bad, "It is tried again by itself.", "the upstream %s fails too often: its circuit breaker is open", u.Address)
		case level == Warn:
			say(Warn, "Let it have requests again below when it is ready.", "the upstream %s is %s", u.Address, state)
		}
	}
}

// count is a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(float64(n)) + " " + thing
}

// maxBrief is how many bytes are shown of what others say.
const maxBrief = 300

// brief is a text of many lines in one, without the full stop at its end.
func brief(text string) string {
	text = printable(strings.Join(strings.Fields(text), " "))
	if len(text) > maxBrief {
		text = strings.ToValidUTF8(text[:maxBrief], "") + " …"
	}
	return strings.TrimSuffix(text, ".")
}

// trafficProblems are those that the counters show.
func (d *Dashboard) trafficProblems(say func(l Level, do, what string, args ...any)) {
	r := d.recorder
	diff, span := r.lately()
	if failed, all := diff.Between(500, 599), diff.Requests(); failed > 0 {
		level := Warn
		if failed*20 > all {
			level = Bad
		}
		say(level, "Filter the log below by `5xx`.", "%d of %s requests in the last %v were answered with a 5xx", failed, grouped(float64(all)), span.Round(time.Second))
	}
	d.scarce(say)
	cpu, seconds := time.Duration(0), 0
	for _, s := range r.seconds[max(0, len(r.seconds)-10):] {
		cpu += s.cpu
		seconds++
	}
	if cores := runtime.GOMAXPROCS(0); seconds == 10 && cpu.Seconds() > 0.9*10*float64(cores) {
		say(Warn, "The profile below, or `millrace-lab pgo record`, shows what it does.", "the server has used %.1f of %d cores for ten seconds", cpu.Seconds()/10, cores)
	}
}
