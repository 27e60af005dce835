package admit

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/field"
	"millrace/internal/wire/netset"
	"millrace/store"
)

// Rate limits how often a client may ask: more gets 429, with Retry-After and
// the RateLimit fields. The rate alone may stand for it: "rate_limit: 10/s".
// Limits are those of this process, unless they are shared; a reload that leaves one as it is keeps what
// it has counted.
type Rate struct {
	// Rate is a number of requests in a time: 10/s, 100/m, 1000/h, 5/10s. Required.
	Rate string `yaml:"rate"`
	// Burst is how many may come at once, after a rest. Default: the number in Rate.
	Burst int `yaml:"burst"`
	// By says what is counted together: "address", the requests of a client's
	// IPv4 address or of its IPv6 network of 64 bits; or "route", those of all
	// clients. Default address.
	By string `yaml:"by"`
	// Header counts by the value of this field, X-Api-Key for example, instead of
	// By. Who sends none is counted by address; who sends several is counted by
	// each of them. Name one whose values something
	// behind the limit checks: whoever makes up a new one each time is not held.
	Header string `yaml:"header"`
	// Except are addresses and networks that are not counted.
	Except []string `yaml:"except"`
	// Shared is a Redis or Valkey where machines put together what they count. Each machine
	// lets a twentieth of the burst pass by itself, at least one request, and tells the
	// others ten times a second; more it borrows there first, for which a request waits, at
	// most 250 ms. While Redis is down, each machine lets a client have the whole rate.
	Shared store.Shared `yaml:"shared"`
}

// What By may be.
const (
	byAddress = "address"
	byRoute   = "route"
)

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Rate) UnmarshalText(text []byte) error {
	o.Rate = string(text)
	return nil
}

// maxBurst bounds a burst, and with it how far a client may be ahead.
const maxBurst = 1_000_000

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Rate) Check() map[string]error {
	faults := map[string]error{}
	if _, _, err := o.parse(); err != nil {
		faults["rate"] = err
	}
	if o.Burst < 0 || o.Burst > maxBurst {
		faults["burst"] = fmt.Errorf("%d is no burst: from 1 to %d", o.Burst, maxBurst)
	}
	switch o.By {
	case "", byAddress, byRoute:
	case "header":
		faults["by"] = errors.New("write \"header: X-Api-Key\" instead of \"by\"")
	default:
		faults["by"] = fmt.Errorf("%q: by is address or route; \"header: X-Api-Key\" counts by a header field", o.By)
	}
	if o.Header != "" {
		switch name := textproto.CanonicalMIMEHeaderKey(o.Header); {
		case !field.Token(o.Header):
			faults["header"] = fmt.Errorf("%q is not the name of a header field", o.Header)
		case name == "Cookie" || name == "Host":
			faults["header"] = fmt.Errorf("%s cannot be counted by: it says more than who asks; for example X-Api-Key", name)
		case o.By != "":
			faults["header"] = errors.New("by and header exclude each other: keep one")
		}
	}
	for key, err := range o.Shared.Check() {
		faults["shared."+key] = err
	}
	if _, err := netset.Parse(o.Except); err != nil {
		faults["except"] = err
	}
	return faults
}

// parse reads the rate.
func (o Rate) parse() (n int, per time.Duration, err error) {
	if o.Rate == "" {
		return 0, 0, errors.New("rate_limit needs \"rate\": a number of requests in a time, like 10/s or 100/m")
	}
	wrong := fmt.Errorf("%q is no rate: write a number of requests in a time, like 10/s, 100/m, 1000/h or 5/10s", o.Rate)
	number, unit, ok := strings.Cut(o.Rate, "/")
	if n, err = strconv.Atoi(strings.TrimSpace(number)); err != nil || !ok || n <= 0 || n > maxBurst {
		return 0, 0, wrong
	}
	unit = strings.TrimSpace(unit)
	if unit != "" && (unit[0] < '0' || unit[0] > '9') {
		unit = "1" + unit
	}
	if unit == "1d" {
		unit = "24h"
	}
	if per, err = time.ParseDuration(unit); err != nil || per < time.Millisecond || per > 24*time.Hour {
		return 0, 0, wrong
	}
	return n, per, nil
}

// A Limit is a Rate in force. It is safe for concurrent use.
type Limit struct {
	table    *Table
	id       uint64
	interval int64 // nanoseconds from one request to the next
	ahead    int64 // how far a client may be ahead of that
	header   string
	together bool // one count for all
	except   netset.Set
	name     string // in RateLimit
	policy   string // the value of RateLimit-Policy

	shared     *Shared // nil: of this process alone
	sharedName string
	unasked    int64 // how many requests of a client pass between two exchanges without asking
}

// Limit puts a rate into force. key says which one it is: what a limit of the
// same key has counted in this table goes on.
func (t *Table) Limit(o Rate, key string) (*Limit, error) {
	for name, err := range o.Check() {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	n, per, err := o.parse()
	if err != nil {
		return nil, err
	}
	burst := cmp.Or(o.Burst, n)
	except, err := netset.Parse(o.Except)
	if err != nil {
		return nil, fmt.Errorf("except: %w", err)
	}
	l := &Limit{table: t, id: t.hash(0, []byte(key)), together: o.By == byRoute, except: except, name: byAddress}
	l.interval = max(1, int64(per)/int64(n))
	l.ahead = math.MaxInt64 / 4
	if int64(burst-1) < l.ahead/l.interval {
		l.ahead = int64(burst-1) * l.interval
	}
	switch {
	case o.Header != "":
		l.header, l.name = textproto.CanonicalMIMEHeaderKey(o.Header), "header"
	case l.together:
		l.name = byRoute
	}
	seconds := max(1, int64(math.Ceil(per.Seconds())))
	l.policy = fmt.Sprintf("%q;q=%d;w=%d", l.name, n, seconds)
	return l, nil
}

// maxValues is how many values of its field a request may be counted by: each is a
// client in the table.
const maxValues = 8

// valuesOf are the different values that a request has of a field, in every spelling
// that some program takes for it: one, and more. Which of several counts behind the
// limit nobody knows, so each is counted.
func valuesOf(lines []field.Line, name string) (one []byte, more []string) {
	folded := field.Fold(name)
	for i := range lines {
		l := &lines[i]
		if l.Name != name && (len(l.Name) != len(name) || field.Fold(l.Name) != folded) {
			continue
		}
		switch v := strings.Trim(l.Value, " \t"); {
		case v == "" || string(one) == v || slices.Contains(more, v):
		case one == nil:
			one = []byte(v)
		default:
			more = append(more, v)
		}
	}
	return one, more
}

// mustBorrow reports whether a request has to borrow from other machines what it takes,
// which may take a moment.
func (l *Limit) mustBorrow(client netip.Addr, now time.Time, value []byte, more []string) bool {
	if l.shared == nil || len(more) >= maxValues {
		return false
	}
	if key, counted := l.key(client, value); counted && l.shared.mustBorrow(l, key, now) {
		return true
	}
	return slices.ContainsFunc(more, func(v string) bool { return l.mustBorrow(client, now, []byte(v), nil) })
}

// takeEach is take for a request that has several values of the limit's field: all
// of them must have something left. Nobody needs more than a few.
func (l *Limit) takeEach(client netip.Addr, now time.Time, value []byte, more []string, waits bool) (wait time.Duration, later bool) {
	if len(more) >= maxValues {
		return time.Duration(l.interval), false
	}
	wait, later = l.ask(client, now, value, waits)
	for _, v := range more {
		w, unsure := l.ask(client, now, []byte(v), waits)
		wait, later = max(wait, w), later || unsure
	}
	return wait, later
}

// take counts a request, or says how long its client has to wait.
func (l *Limit) take(client netip.Addr, now time.Time, value []byte) time.Duration {
	wait, _ := l.ask(client, now, value, true)
	return wait
}

// ask is take, for who may not wait for other machines either: then nothing is counted where
// that is needed, and later is true.
func (l *Limit) ask(client netip.Addr, now time.Time, value []byte, waits bool) (wait time.Duration, later bool) {
	key, counted := l.key(client, value)
	switch {
	case !counted:
		return 0, false
	case l.shared != nil:
		return l.shared.take(l, key, client, value, now, waits)
	}
	return l.table.take(key, now, l.interval, l.ahead), false
}

// key is what a request is counted as in the table; counted: it is.
func (l *Limit) key(client netip.Addr, value []byte) (key uint64, counted bool) {
	if !l.except.Empty() && l.except.Has(client) {
		return 0, false
	}
	switch {
	case l.together:
		return l.id, true
	case l.header != "" && len(value) > 0:
		return l.table.hash(^l.id, value), true // never the same as an address
	case !client.IsValid(): // of a UNIX socket: all clients are behind it
		return 0, false
	}
	var b [8]byte
	return l.table.hash(l.id, address(&b, client)), true
}

// address is what a client is counted as: its IPv4 address, or the /64 of its
// IPv6 address, which is the least that one customer has.
func address(b *[8]byte, a netip.Addr) []byte {
	a = a.Unmap()
	if a.Is4() {
		four := a.As4()
		return b[:copy(b[:], four[:])]
	}
	all := a.As16()
	binary.BigEndian.PutUint64(b[:], binary.BigEndian.Uint64(all[:8]))
	return b[:]
}
