package bustest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/store/bus"
)

// clients lists the clients in a channel.
func (m *machine) clients(channel string) string {
	m.t.Helper()
	all, err := ask(m.t, "the members of "+channel, func(done func([]bus.Member, error)) { m.Bus.Members(channel, done) })
	if err != nil {
		m.t.Fatalf("the members of %q: %v", channel, err)
	}
	names := []string{}
	for _, member := range all {
		if member.User != "user of "+member.Client || string(member.Info) != `{"x":1}` {
			m.t.Errorf("the member %+v is not what it was", member)
		}
		names = append(names, member.Client)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (s suite) members(t *testing.T) {
	m := s.machine(t, usual())
	if got := m.clients("a"); got != "" {
		t.Errorf("%q are in a channel where nobody is", got)
	}
	m.present("a", "x", "y")
	m.present("b.>", "z")
	for channel, want := range map[string]string{"a": "x y", "b.>": "z", "c": ""} {
		if got := m.clients(channel); got != want {
			t.Errorf("%q are in %s, want %q", got, channel, want)
		}
	}
}

func (s suite) twoMachines(t *testing.T) {
	one, two := s.machine(t, usual()), s.machine(t, usual())
	names := oddNames()
	one.listen(names...)
	two.listen(names...)
	for _, name := range names {
		sent := []bus.Message{one.publish(name, name), two.publish(name, name)}
		for _, m := range []*machine{one, two} {
			if got := m.delivered(name, 2); !same(got, sent) {
				t.Errorf("%q was delivered as %+v, want %+v", name, got, sent)
			}
		}
	}
	two.Ignore("a")
	one.publish("a", "x")
	one.publish("b", "x") // nobody listens
	one.publish("A", "x")
	two.delivered("A", 3)
	if got := two.delivered("a", 0); len(got) != 2 {
		t.Errorf("%d were delivered of a channel that is ignored, want the 2 of before", len(got))
	}
}

func (s suite) twoOrder(t *testing.T) {
	const publishers, each = 6, 40
	machines := []*machine{s.machine(t, usual()), s.machine(t, usual())}
	for _, m := range machines {
		m.listen("a")
	}
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				if _, err := machines[p%2].Publish(t.Context(), bus.Message{Channel: "a", Data: fmt.Appendf(nil, "%d/%d", p, i)}); err != nil {
					t.Errorf("publishing: %v", err)
				}
			}
		})
	}
	all.Wait()
	got := machines[0].delivered("a", publishers*each)
	checkOrder(t, got, publishers, each)
	if other := machines[1].delivered("a", publishers*each); !same(got, other) {
		t.Error("the machines have not seen the same")
	}
}

func (s suite) twoHistory(t *testing.T) {
	one, two := s.machine(t, usual()), s.machine(t, usual())
	before := one.top("a")
	all := one.many("a", 5)
	if h := two.history("a", &before, 0); !h.Complete || !same(h.Messages, all) {
		t.Errorf("one's position gave two: complete %v, %q", h.Complete, texts(h.Messages))
	}
}

func (s suite) twoIDs(t *testing.T) {
	one, two := s.machine(t, usual()), s.machine(t, usual())
	one.listen("a")
	two.listen("a")
	first := one.send(bus.Message{Channel: "a", ID: "x", Data: []byte("1")})
	again := two.send(bus.Message{Channel: "a", ID: "x", Data: []byte("2")})
	if again.Offset != first.Offset {
		t.Errorf("the same ID was published at %d and %d", first.Offset, again.Offset)
	}
	two.publish("a", "end")
	for _, m := range []*machine{one, two} {
		if got := texts(m.delivered("a", 2)); !slices.Equal(got, []string{"1", "end"}) {
			t.Errorf("delivered %q", got)
		}
	}
}

func (s suite) twoMembers(t *testing.T) {
	one, two := s.machine(t, usual()), s.machine(t, usual())
	one.present("a", "x", "y")
	two.present("a", "z")
	for _, m := range []*machine{one, two} {
		// The first answer may come before machines have heard of each other.
		m.eventually("both machines' clients are members", func() bool { return m.clients("a") == "x y z" })
	}
	// More than fits into one message of most engines.
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("client%04d-%s", i, strings.Repeat("x", 200)))
	}
	two.present("many", many...)
	one.eventually("five thousand clients are members", func() bool { return one.clients("many") == strings.Join(many, " ") })
}

func (s suite) oneCloses(t *testing.T) {
	one, two := s.machine(t, usual()), s.machine(t, usual())
	one.listen("a")
	two.listen("a")
	one.present("a", "x")
	two.present("a", "y")
	one.publish("a", "1")
	two.delivered("a", 1)
	if err := one.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	two.publish("a", "2")
	if got := texts(two.delivered("a", 2)); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("delivered %q", got)
	}
	two.eventually("the other's client is gone", func() bool { return two.clients("a") == "y" })
	if _, err := one.Publish(t.Context(), bus.Message{Channel: "a"}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("publishing on what is closed: %v", err)
	}
}

func (s suite) late(t *testing.T) {
	one, two := s.machine(t, usual()), s.machine(t, usual())
	all := append(one.many("a", 3), two.many("a", 3)...)
	top := one.top("a")
	three := s.machine(t, usual())
	if h := three.history("a", nil, 0); !same(h.Messages, all) || h.Top.Epoch != top.Epoch {
		t.Errorf("who comes late sees %q up to %v, want all up to %v", texts(h.Messages), h.Top, top)
	}
	three.listen("a")
	last := one.publish("a", "last")
	if got := three.delivered("a", 1); !same(got, []bus.Message{last}) {
		t.Errorf("who comes late was delivered %q, want the last alone", texts(got))
	}
}
