package load

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strconv"
)

// A visitor is one client: what it has of its own while it goes through the steps.
// A connection has one, or each stream of it; one that is opened anew keeps it. A
// load whose requests are always the same needs none.
type visitor struct {
	*plan
	supply *supply
	row    []string          // of Config.Data
	taken  map[string]string // from answers
	jar    *cookiejar.Jar    // nil: no cookies are kept
	number uint64            // of the request that is made
}

// first is the step at which a connection begins: each of several paths has its
// share from the start.
func (p *plan) first(connection int) int32 {
	if p.scenario {
		return 0
	}
	return int32(connection % len(p.steps))
}

// pathOf is the path of a step as it was written.
func (p *plan) pathOf(step int) string {
	if p.scenario {
		return p.Steps[step].Path
	}
	return p.Paths[step]
}

// after is the step behind one: the next, or the first again, for a visitor that
// then begins anew.
func (p *plan) after(step int32, right bool, v *visitor) int32 {
	if step++; int(step) == len(p.steps) || p.scenario && !right {
		step = 0
	}
	if v != nil && (step == 0 || !p.scenario) {
		v.again()
	}
	return step
}

// A supply is what a thread's visitors share: the next row, and the next number.
// Numbers begin at the time in µs: two loads one after the other have none in
// common, as no loop sends a request each µs.
type supply struct {
	rows   [][]string
	row    int
	number uint64
	stride int // threads take turns
}

func newSupply(p *plan, thread int) *supply {
	s := &supply{row: thread, number: uint64(p.base.UnixMicro()) + uint64(thread), stride: p.Threads}
	if p.Data != nil {
		s.rows = p.Data.Rows
	}
	return s
}

// newVisitor makes a client, nil where it would have nothing of its own.
func (p *plan) newVisitor(s *supply) *visitor {
	if !p.varies {
		return nil
	}
	v := &visitor{plan: p, supply: s}
	v.again()
	return v
}

// again begins the steps anew: with the next row, and in a scenario as somebody
// who has never been there.
func (v *visitor) again() {
	if len(v.supply.rows) > 0 {
		v.row = v.supply.rows[v.supply.row%len(v.supply.rows)]
		v.supply.row += v.supply.stride
	}
	if v.jar != nil && !v.scenario {
		return
	}
	clear(v.taken)
	if v.Cookies {
		v.jar, _ = cookiejar.New(nil) // cannot fail
	}
}

// next gives a request a number of its own.
func (v *visitor) next() {
	v.number = v.supply.number
	v.supply.number += uint64(v.supply.stride)
}

// value is what a name stands for.
func (v *visitor) value(name string) string {
	if name == number {
		return strconv.FormatUint(v.number, 10)
	}
	if found, ok := v.taken[name]; ok {
		return found
	}
	if i := slices.Index(v.columns(), name); i >= 0 && i < len(v.row) {
		return v.row[i]
	}
	return ""
}

func (p *plan) columns() []string {
	if p.Data == nil {
		return nil
	}
	return p.Data.Columns
}

func (v *visitor) take(name, value string) {
	if v.taken == nil {
		v.taken = map[string]string{}
	}
	v.taken[name] = value
}

// at is the URL of a path, for cookies.
func (v *visitor) at(path template) *url.URL {
	u := &url.URL{Scheme: "http", Host: v.host}
	if v.secure() {
		u.Scheme = "https"
	}
	if p, err := url.ParseRequestURI(path.string(v)); err == nil {
		u.Path = p.Path
	}
	return u
}

// cookie is the header Cookie for a path; empty: there is none.
func (v *visitor) cookie(path template) string {
	if v == nil || v.jar == nil {
		return ""
	}
	text := ""
	for _, c := range v.jar.Cookies(v.at(path)) {
		if text != "" {
			text += "; "
		}
		text += c.Name + "=" + c.Value
	}
	return text
}

// keep keeps the cookies of an answer.
func (v *visitor) keep(path template, head http.Header) {
	if v.jar == nil {
		return
	}
	if set := (&http.Response{Header: head}).Cookies(); len(set) > 0 {
		v.jar.SetCookies(v.at(path), set)
	}
}

// seen is an answer, with the length of its body. what is nil where nobody looks into answers.
type seen struct {
	status int
	length int64
	what   *received
}

// judge says whether an answer is a right one, counts it if it is not, and has the
// visitor learn from it.
func (t *tally) judge(p *plan, page *page, s *step, v *visitor, a seen) bool {
	status, length, h := a.status, a.length, a.what
	looks := len(s.checks)+len(s.takes) > 0 || s.readHead
	usual := status >= 200 && status <= 299 || status == http.StatusSwitchingProtocols
	if page.status == 0 {
		page.status, page.body, page.plain = status, length, usual && !looks
	} else if status != page.status || length != page.body {
		t.varied++
		if p.Alike {
			t.fail(&t.errors.Unexpected, errChanged(status, length, page.status, page.body))
			return false
		}
	}
	if looks {
		if h == nil {
			h = new(received)
		}
		h.status = status
		if v != nil {
			v.keep(s.path, h.head)
		}
		if err := s.learn(h, v); err != nil {
			t.fail(&t.errors.Unexpected, &unexpected{s.name, err})
			return false
		}
	}
	if !usual && !s.expectsStatus() {
		t.non2xx++
	}
	return true
}

// unexpected is an answer that is not what was asked for.
type unexpected struct {
	step string
	why  error
}

func (u *unexpected) Error() string { return u.step + " was answered with " + u.why.Error() }
func (u *unexpected) Unwrap() error { return u.why }
