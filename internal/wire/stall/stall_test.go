package stall

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a connection with so many streams that wait, by its name.
type fake struct {
	name   string
	client netip.Addr
	n      atomic.Int64
	gone   atomic.Bool
}

func (f *fake) Client() netip.Addr { return f.client }

func (f *fake) Streams(time.Time) Count {
	if f.gone.Load() {
		return Count{}
	}
	return Count{Open: int(f.n.Load()), Waiting: int(f.n.Load())}
}
func (f *fake) Evict() { f.gone.Store(true) }

// The address that holds most gives way first, with its largest connections; one with
// a single stream does so last.
func TestWhoGivesWay(t *testing.T) {
	conns := func(text string) (all []Conn) {
		for name := range strings.FieldsSeq(text) { // a7: client a, seven streams; -: no client
			f := &fake{name: name}
			if name[0] != '-' {
				f.client = netip.AddrFrom4([4]byte{10, 0, 0, name[0]})
			}
			n, _ := strconv.ParseInt(name[1:], 10, 64)
			f.n.Store(n)
			all = append(all, f)
		}
		return all
	}
	for _, c := range []struct {
		conns     string
		all, each int
		over      string
	}{
		{"a1 b1 c1", 3, 3, ""},
		{"a1 b1 c9", 3, 9, "c9"},
		{"a5 a6 b10 c1", 12, 20, "a6 b10"},
		{"a5 a6 b10 c1", 16, 20, "a6"},
		{"a5 a6 b10 c1", 30, 10, "a6"},
		{"a5 a6 b10 c1", 30, 9, "a6 b10"},
		{"a2 a2 a2 a2 b3 c1", 9, 8, "a2 a2"}, // 8 and 3: many small ones are as bad
		{"-5 -5 -6 a1", 30, 4, ""},           // proxies come for many
		{"-5 -5 -6 a1", 11, 4, "-6"},
		{"a0 b0", 0, 0, ""},
		{"", 1, 1, ""},
	} {
		var over []string
		for _, f := range excess(conns(c.conns), func(f Conn) int { return f.Streams(time.Time{}).Waiting }, Limits{c.all, c.each}) {
			over = append(over, f.(*fake).name)
		}
		slices.Sort(over)
		if got := strings.Join(over, " "); got != c.over {
			t.Errorf("%s of at most %d, each %d: %q give way, want %q", c.conns, c.all, c.each, got, c.over)
		}
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		b := NewBudget(func() { refused++ })
		b.Set(Budgets{Open: Limits{100, 100}, Waiting: Limits{10, 5}})
		slow := &fake{name: "slow", client: netip.MustParseAddr("10.0.0.1")}
		slow.n.Store(1)
		attack := &fake{name: "attack", client: netip.MustParseAddr("10.0.0.2")}
		attack.n.Store(4)
		var told []string
		go b.Watch(t.Context(), func() []Conn { return []Conn{slow, attack} }, func(c Conn) { told = append(told, c.(*fake).name) })
		b.Add(5)
		synctest.Wait()
		if b.Pressed() || attack.gone.Load() {
			t.Error("too early")
		}
		attack.n.Store(9)
		b.Add(5)
		time.Sleep(checkEvery)
		synctest.Wait()
		if !b.Pressed() || !attack.gone.Load() || slow.gone.Load() || !slices.Equal(told, []string{"attack"}) {
			t.Errorf("%v %v %v", attack.gone.Load(), slow.gone.Load(), told)
		}
		b.Add(10) // of others, who wait for something else
		time.Sleep(checkEvery)
		synctest.Wait()
		attack.gone.Store(false) // they are back, and are found even if no more are opened
		time.Sleep(recheckAfter + checkEvery)
		synctest.Wait()
		if !attack.gone.Load() || slow.gone.Load() {
			t.Error("the attack goes on")
		}
		b.Add(-19)
		if b.Refuse(); b.Pressed() || b.Open() != 1 || refused != 1 {
			t.Error(b.Open(), refused)
		}
	})
	var none *Budget
	none.Add(1)
	if none.Pressed() {
		t.Error("nobody counts")
	}
}

// A connection with a few streams may let each stand still for a moment.
func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Handlers
		count := func(open, waiting int) {
			t.Helper()
			if c := h.Streams(time.Now()); c != (Count{Open: open, Waiting: waiting}) {
				t.Errorf("%+v, want %d, %d", c, open, waiting)
			}
		}
		h.Begin()
		h.Wait()
		count(1, 0)
		time.Sleep(StalledAfter)
		count(1, 1)
		h.Go()
		h.Wait()
		count(1, 0)
		for range Few {
			h.Begin()
			h.Wait()
		}
		count(Few+1, Few+1)
		h.Go()
		h.End()
		count(Few, 0)
	})
	var none *Handlers
	none.Begin()
	none.Wait()
	none.Go()
	none.End()
	if Of(t.Context()) != nil {
		t.Error("somebody counts")
	}
}
