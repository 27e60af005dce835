package nats

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"testing"

	"millrace/store/bus"
)

// placesOf waits until n publications without an offset have one.
func (h *host) placesOf(n int) {
	h.t.Helper()
	h.until(fmt.Sprintf("%d publications are placed", n), func() bool { return len(h.placed) >= n })
}

// numbers publishes n texts with a prefix.
func (h *host) numbers(channel, prefix string, n int) (all []string) {
	h.t.Helper()
	for i := range n {
		text := fmt.Sprint(prefix, i)
		h.publish(channel, text)
		all = append(all, text)
	}
	return all
}

// agree looks whether hosts and the stream have the same, each once, and
// whether what came from one publisher is in its order.
func agree(t *testing.T, want []string, channel string, hosts ...*host) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(want))
	for i, h := range hosts {
		got := h.texts(channel, len(want))
		sort.Strings(got)
		if !slices.Equal(got, sorted) {
			t.Errorf("host %d has %d publications %q, want %d %q", i, len(got), got, len(sorted), sorted)
		}
		h.sound()
	}
	history := []string{}
	places := map[string]int{}
	for i, m := range hosts[0].history(channel, nil).Messages {
		history = append(history, string(m.Data))
		places[string(m.Data)] = i
	}
	for i, text := range want[1:] {
		before := want[i]
		if before[0] == text[0] && places[before] > places[text] {
			t.Errorf("%s has its place behind %s", before, text)
		}
	}
	sort.Strings(history)
	if !slices.Equal(history, sorted) {
		t.Errorf("the history has %d publications %q, want %d", len(history), history, len(sorted))
	}
}

// TestServerRestarts kills the server; both machines publish meanwhile.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one, two := openHost(t, s.url(), usual(), "a", "quiet"), openHost(t, s.url(), usual(), "a", "quiet")
	want := append(one.numbers("a", "a", 20), two.numbers("a", "b", 20)...)
	one.texts("a", 40)
	two.texts("a", 40)
	before := one.history("a", nil).Top
	s.Kill()
	one.isDown()
	two.isDown()
	for _, h := range []*host{one, two} {
		if m := h.publish("b", "nobody listens"); m.Offset != 0 || m.ID == "" {
			t.Errorf("published while the server is down: %+v", m)
		}
		if _, err := h.tryHistory("a", nil); !errors.Is(err, bus.ErrDown) {
			t.Errorf("a history while the server is down: %v, want ErrDown", err)
		}
	}
	want = append(append(want, one.numbers("a", "c", 30)...), two.numbers("a", "d", 30)...)
	if got := one.texts("a", 70); len(got) != 70 || got[69] != "c29" {
		t.Errorf("one has %d publications, the last %s; its own should have come at once", len(got), got[len(got)-1])
	}
	s.run()
	one.isUp()
	two.isUp()
	one.placesOf(30)
	two.placesOf(30)
	agree(t, want, "a", one, two)
	// Placed where the stream has it.
	for _, m := range one.history("a", &before).Messages {
		for _, h := range []*host{one, two} {
			if at, ok := h.placed[m.ID]; ok && at != m.Offset {
				t.Errorf("%s was placed at %d, it is at %d", m.Data, at, m.Offset)
			}
		}
	}
	if h := one.history("a", &before); !h.Complete || len(h.Messages) != 60 {
		t.Errorf("since before the interruption: complete %v, %d messages, want 60", h.Complete, len(h.Messages))
	}
	want = append(want, one.numbers("a", "e", 5)...)
	agree(t, want, "a", one, two)
	for _, h := range []*host{one, two} {
		if got := h.resetOf(); len(got) > 0 {
			t.Errorf("reset %q, and nothing was lost", got)
		}
	}
}

// TestDataGone restarts the server without its data.
func TestDataGone(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one, two := openHost(t, s.url(), usual(), "a"), openHost(t, s.url(), usual(), "a")
	one.numbers("a", "a", 20)
	one.texts("a", 20)
	two.texts("a", 20)
	before := one.history("a", nil).Top
	s.Kill()
	one.isDown()
	two.isDown()
	s.dir = t.TempDir()
	one.numbers("a", "c", 3)
	s.run()
	one.isUp()
	two.isUp()
	for _, h := range []*host{one, two} {
		h.until("all channels are reset", func() bool { return slices.Contains(h.resets, "") })
	}
	two.numbers("a", "d", 3)
	want := []string{"c0", "c1", "c2", "d0", "d1", "d2"}
	for _, h := range []*host{one, two} {
		if got := h.texts("a", 26)[20:]; !slices.Equal(got, want) {
			t.Errorf("delivered %q behind the first 20, want %q", got, want)
		}
	}
	one.placesOf(3)
	h := one.history("a", &before)
	if h.Complete || h.Top.Epoch == before.Epoch || len(h.Messages) != 6 {
		t.Errorf("since before: complete %v, epoch %s after %s, %d messages", h.Complete, h.Top.Epoch, before.Epoch, len(h.Messages))
	}
}

// TestStreamDeleted deletes the stream under the machines' hands.
func TestStreamDeleted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one, two := openHost(t, s.url(), usual(), "a"), openHost(t, s.url(), usual(), "a")
	one.numbers("a", "a", 5)
	two.texts("a", 5)
	if err := one.js.DeleteStream(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*host{one, two} {
		h.until("all channels are reset", func() bool { return slices.Contains(h.resets, "") })
		h.isUp()
	}
	one.numbers("a", "b", 3)
	for _, h := range []*host{one, two} {
		if got := h.texts("a", 8)[5:]; !slices.Equal(got, []string{"b0", "b1", "b2"}) {
			t.Errorf("delivered %q behind the first five", got)
		}
	}
}

// TestWentBack restarts the server with the data of earlier, as after a loss
// of power: its numbers would be given twice.
func TestWentBack(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one := openHost(t, s.url(), usual(), "a")
	one.numbers("a", "a", 5)
	one.texts("a", 5)
	s.Kill()
	one.isDown()
	old := t.TempDir()
	if out, err := exec.Command("cp", "-a", s.dir+"/.", old).CombinedOutput(); err != nil {
		t.Fatalf("copying the store: %v: %s", err, out)
	}
	s.run()
	one.isUp()
	one.numbers("a", "b", 5)
	one.texts("a", 10)
	before := one.history("a", nil).Top
	s.Kill()
	one.isDown()
	s.dir = old
	s.run()
	one.isUp()
	one.until("all channels are reset", func() bool { return slices.Contains(one.resets, "") })
	one.numbers("a", "c", 7) // more than were lost
	if h := one.history("a", &before); h.Complete || h.Top.Epoch == before.Epoch {
		t.Errorf("since a place that was lost: complete %v, epoch %s after %s", h.Complete, h.Top.Epoch, before.Epoch)
	}
	two := openHost(t, s.url(), usual())
	if a, b := one.history("a", nil).Top.Epoch, two.history("a", nil).Top.Epoch; a != b {
		t.Errorf("two machines are in the epochs %s and %s", a, b)
	}
}

// TestSlowStart opens machines before there is a server.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one, two := openHost(t, s.url(), usual(), "a"), openHost(t, s.url(), usual(), "a")
	one.isDown()
	one.until("the state is told", func() bool { return len(one.states) == 1 && errors.Is(one.states[0], bus.ErrDown) })
	want := append(one.numbers("a", "a", 10), two.numbers("a", "b", 10)...)
	if got := one.texts("a", 10); len(got) != 10 {
		t.Errorf("one has %q, want its own", got)
	}
	s.run()
	one.isUp()
	two.isUp()
	agree(t, want, "a", one, two)
	one.placesOf(10)
	one.sound()
}

// TestCut cuts off one machine while the other goes on.
func TestCut(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := newWire(t, s.addr())
	one, two := openHost(t, s.url(), usual(), "a", "b"), openHost(t, w.url(), usual(), "a", "quiet")
	want := one.numbers("a", "a", 10)
	two.texts("a", 10)
	w.set(true, false)
	two.isDown()
	want = append(append(want, one.numbers("a", "b", 150)...), two.numbers("a", "c", 50)...)
	one.numbers("b", "x", 50)
	if err := two.Listen("b"); err != nil { // from now on, whatever that is
		t.Fatal(err)
	}
	w.set(false, false)
	two.isUp()
	two.placesOf(50)
	agree(t, want, "a", one, two)
	want = append(want, one.numbers("a", "d", 5)...)
	agree(t, want, "a", one, two)
	if got := two.resetOf(); len(got) > 0 {
		t.Errorf("reset %q, and nothing was lost", got)
	}
	// What came from others came in their order.
	var others []string
	for _, text := range two.texts("a", len(want)) {
		if text[0] == 'b' {
			others = append(others, text)
		}
	}
	if !slices.Equal(others, want[10:160]) {
		t.Errorf("what was missed came as %q", others)
	}
}

// TestCutTooLong has more published than the history holds.
func TestCutTooLong(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := newWire(t, s.addr())
	keep := usual()
	keep.Messages = 5
	one, two := openHost(t, s.url(), keep), openHost(t, w.url(), keep, "a", "b", "quiet")
	one.numbers("a", "a", 3)
	one.numbers("b", "a", 3)
	one.numbers("quiet", "a", 1)
	two.texts("a", 3)
	two.texts("b", 3)
	two.texts("quiet", 1)
	w.set(true, false)
	two.isDown()
	one.numbers("a", "b", 20)
	one.numbers("b", "b", 2)
	two.numbers("b", "c", 9) // of which five are kept for others
	w.set(false, false)
	two.isUp()
	if got := two.texts("a", 8)[3:]; !slices.Equal(got, []string{"b15", "b16", "b17", "b18", "b19"}) {
		t.Errorf("of what was missed came %q, want the last five", got)
	}
	two.until("the channel is reset", func() bool { return len(two.resets) > 0 })
	one.publish("quiet", "end")
	two.texts("quiet", 2)
	if got := two.resetOf(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("reset %q, want the one channel that lost something", got)
	}
	var texts []string
	for _, m := range one.history("b", nil).Messages {
		texts = append(texts, string(m.Data))
	}
	if !slices.Equal(texts, []string{"c4", "c5", "c6", "c7", "c8"}) {
		t.Errorf("the other machines have %q, want the last five", texts)
	}
	two.sound()
}

// TestMute has the server's answers lost while it hears all: each publication
// reaches it, no confirmation comes back.
func TestMute(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := newWire(t, s.addr())
	one, two := openHost(t, s.url(), usual(), "a"), openHost(t, w.url(), usual(), "a")
	want := two.numbers("a", "a", 3)
	one.texts("a", 3)
	two.texts("a", 3)
	w.set(false, true)
	m := two.publish("a", "b0")
	if m.Offset != 0 {
		t.Errorf("published without a confirmation, with the offset %d", m.Offset)
	}
	want = append(want, "b0")
	one.texts("a", 4) // the server has it
	want = append(want, two.numbers("a", "c", 3)...)
	two.isDown()
	w.set(true, false)
	w.set(false, false)
	two.isUp()
	two.placesOf(4)
	agree(t, want, "a", one, two)
}

// TestKilledMachine ends one machine without a word.
func TestKilledMachine(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one, two := openHost(t, s.url(), usual(), "a"), openHost(t, s.url(), usual(), "a")
	one.members = []bus.Member{{Client: "x"}}
	two.members = []bus.Member{{Client: "y"}}
	clients := func() string {
		type answer struct {
			all []bus.Member
			err error
		}
		answers := make(chan answer, 1)
		one.Bus.Members("a", func(all []bus.Member, err error) { answers <- answer{all, err} })
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		var names []string
		for _, m := range a.all {
			names = append(names, m.Client)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	var got string
	one.until("both are members", func() bool {
		one.mu.Unlock() // until holds it, and Members wants it
		defer one.mu.Lock()
		got = clients()
		return got == "x y"
	})
	two.publish("a", "1")
	two.close(0)
	if got := clients(); got != "x" {
		t.Errorf("%q are members after one machine was killed", got)
	}
	one.publish("a", "2")
	if got := one.texts("a", 2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("delivered %q", got)
	}
}

// TestCloseSends closes a machine that has an outbox, just as the server comes
// back; and one whose server does not come.
func TestCloseSends(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one := openHost(t, s.url(), usual())
	w := newWire(t, s.addr())
	two := openHost(t, w.url(), usual(), "a")
	w.set(true, false)
	two.isDown()
	two.numbers("a", "a", 5)
	closed := make(chan error, 1)
	go func() { closed <- two.close(patience) }()
	w.set(false, false)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if got := one.history("a", nil).Messages; len(got) != 5 {
		t.Errorf("the others have %d publications, want the 5 of before closing", len(got))
	}
	three := openHost(t, s.url(), usual(), "a")
	s.Kill()
	three.isDown()
	three.numbers("a", "b", 5)
	if err := three.Close(); err != nil {
		t.Error(err)
	}
	if _, err := three.Publish(context.Background(), bus.Message{Channel: "a"}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("publishing: %v, want ErrClosed", err)
	}
}

// TestWithoutJetStream tells what to do.
func TestWithoutJetStream(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.dir = ""
	s.run()
	one := openHost(t, s.url(), usual(), "a")
	one.until("the state says what to do", func() bool {
		return len(one.states) > 0 && one.states[0] != nil && strings.Contains(one.states[0].Error(), "nats-server -js")
	})
	if m := one.publish("a", "x"); m.Offset != 0 {
		t.Errorf("published with the offset %d", m.Offset)
	}
	one.texts("a", 1)
}

// TestPassword needs one, and tells it to nobody.
func TestPassword(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--user", "mill", "--pass", "right")
	good := openHost(t, "nats://mill:right@"+s.addr(), usual(), "a")
	good.isUp()
	good.publish("a", "x")
	bad := openHost(t, "nats://mill:secret@"+s.addr(), usual(), "a")
	bad.isDown()
	bad.until("the state says why", func() bool {
		return slices.ContainsFunc(bad.states, func(err error) bool { return strings.Contains(strings.ToLower(err.Error()), "authorization") })
	})
	for _, err := range bad.states {
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the state %q tells the password", err)
		}
	}
	bad.publish("a", "local")
	bad.texts("a", 1)
}

// TestWidened changes the bounds of a stream that has dropped messages.
func TestWidened(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	keep := usual()
	keep.Messages = 2
	one := openHost(t, s.url(), keep)
	before := one.history("a", nil).Top
	one.numbers("a", "a", 3)
	two := openHost(t, s.url(), usual())
	if h := two.history("a", &before); h.Complete || len(h.Messages) != 2 {
		t.Errorf("since before the first of three: complete %v with %d messages, though one was dropped", h.Complete, len(h.Messages))
	}
	top := two.history("a", nil).Top
	two.numbers("a", "b", 10)
	if h := two.history("a", &top); !h.Complete || len(h.Messages) != 10 {
		t.Errorf("since the change: complete %v, %d messages, want 10", h.Complete, len(h.Messages))
	}
}

func TestCheck(t *testing.T) {
	for url, ok := range map[string]bool{
		"nats://localhost": true, "nats://localhost:4222": true, "tls://u:p@host:1": true, "nats://token@host": true,
		"nats://a,nats://b": true, "nats://a, tls://b:2": true, "nats://[::1]:4222": true,
		"": false, "localhost:4222": false, "http://a": false, "nats://": false, "nats://a,": false, "nats://a/b": false, "nats://a?b": false,
		"nats://u:sec ret%zz@a": false, "nats://:4222": false, "nats://u:sec ret/x@a": false, "nats://u:sec ret,x@a": false,
	} {
		err := Check(url)
		if (err == nil) != ok {
			t.Errorf("%q: %v, want ok = %v", url, err, ok)
		}
		if err != nil && strings.Contains(err.Error(), "sec ret") {
			t.Errorf("%q tells the password: %v", url, err)
		}
	}
	if _, err := Open(Options{URL: "nats://localhost", Name: "a.b"}); err == nil {
		t.Error("a name with a dot was accepted")
	}
}
