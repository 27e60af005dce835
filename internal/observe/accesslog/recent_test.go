package accesslog

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func seen(at time.Time, target string) *Record {
	return &Record{Time: at, Remote: "192.0.2.1", Host: "a.example", Method: "GET", Target: target, Proto: "HTTP/1.1", Status: 200, Bytes: 5, Duration: time.Millisecond, Fast: true}
}

// start is a moment whose nanoseconds are not zero.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)

func TestRecentSeesAllOfFew(t *testing.T) {
	r := NewRecent()
	l := Watched(nil, r)
	for i := range 100 {
		rec := seen(start.Add(time.Duration(i)*37*time.Millisecond), fmt.Sprintf("/p%d?x=%d", i%10, i))
		if i%10 == 3 {
			rec.Status = 404
		}
		if !l.Wants(rec.Time, rec.Status, rec.Duration) {
			t.Fatalf("request %d is not in the sample", i)
		}
		l.Write(rec)
	}
	look := r.Look(start.Add(5*time.Second), 20)
	if len(look.Paths) != 10 || look.Paths[0] != (Count{"a.example/p0", 10, 0}) {
		t.Errorf("paths %v", look.Paths)
	}
	if len(look.Missing) != 1 || look.Missing[0] != (Count{"a.example/p3", 10, 0}) {
		t.Errorf("missing %v", look.Missing)
	}
	if len(look.Clients) != 1 || look.Clients[0].N != 100 || look.Protocols[0].Name != "HTTP/1.1" {
		t.Errorf("clients %v, protocols %v", look.Clients, look.Protocols)
	}
	tail := r.Tail(5, nil)
	if len(tail) != 5 || tail[0].Target != "/p9?x=99" || tail[0].Lane != "fast" || tail[4].Target != "/p5?x=95" {
		t.Errorf("tail %+v", tail)
	}
	if only := r.Tail(100, func(e *Entry) bool { return e.Status == 404 }); len(only) != 10 {
		t.Errorf("%d entries with 404, want 10", len(only))
	}
	if err := l.Close(); err != nil || l.Reopen() != nil {
		t.Error("a log that is off cannot be closed")
	}
}

// A flood is counted by a sample, whose sums are about right, and a rare name among
// many others is not lost.
func TestRecentSamplesAFlood(t *testing.T) {
	r := NewRecent()
	const rate, seconds = 50_000, 8
	looked := 0
	for i := range rate * seconds {
		rec := seen(start.Add(time.Duration(i)*(time.Second/rate)), "/often")
		if i%4 == 0 {
			rec.Target = fmt.Sprintf("/rare%d", i)
		}
		before := r.next
		r.take(rec)
		looked += r.next - before
	}
	if most := mostTaken * (seconds + 8); looked > most {
		t.Errorf("looked at %d requests, want at most %d", looked, most)
	}
	look := r.Look(start.Add(seconds*time.Second), 5)
	want := float64(rate * seconds * 3 / 4)
	if first := look.Paths[0]; first.Name != "a.example/often" || float64(first.N) < want/2 || float64(first.N) > want*2 {
		t.Errorf("the first path is %+v, want about %.0f", first, want)
	}
	if look.Usual < 16 || look.Notable != 1 {
		t.Errorf("one of %d usual and one of %d notable requests is looked at", look.Usual, look.Notable)
	}
	// Errors have a sample of their own.
	bad := seen(start.Add(seconds*time.Second), "/broken")
	bad.Status = 502
	r.take(bad)
	if tail := r.Tail(1, nil); tail[0].Status != 502 {
		t.Errorf("the error is not in the tail: %+v", tail)
	}
}

func TestRecentIsBoundedAndForgets(t *testing.T) {
	r := NewRecent()
	for i := range 5000 {
		rec := seen(start.Add(time.Duration(i)*10*time.Millisecond), fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 5000)))
		rec.Remote, rec.Status = fmt.Sprint("client", i), 404
		rec.Duration = time.Duration(i) * time.Microsecond
		r.take(rec)
	}
	if len(r.paths.now) > maxTop || len(r.clients.now) > maxTop || len(r.slowest) > maxSlow {
		t.Errorf("%d paths, %d clients, %d slow ones", len(r.paths.now), len(r.clients.now), len(r.slowest))
	}
	for i := range r.ring {
		if n := cap(r.ring[i].text); n > 2*(maxRemote+maxEntryHost+maxMethod+maxProto+maxEntryTarget) {
			t.Fatalf("an entry takes %d bytes", n)
		}
	}
	later := r.Look(start.Add(time.Hour), 10)
	if len(later.Paths)+len(later.Missing)+len(later.Clients)+len(later.Slowest) != 0 {
		t.Errorf("an hour later it still knows %+v", later)
	}
}

func TestRecentHidesSecretsAndControlCharacters(t *testing.T) {
	r := NewRecent()
	r.take(seen(start, "/a?token=abcdefghijklmnop&x=1"))
	r.take(seen(start.Add(time.Second), "/\x1b[31mred\x00\xff"))
	for _, e := range r.Tail(10, nil) {
		if strings.Contains(e.Target, "abcdef") || strings.ContainsAny(e.Target, "\x1b\x00") || !utf8.ValidString(e.Target) {
			t.Errorf("the tail has %q", e.Target)
		}
	}
	for _, c := range r.Look(start.Add(time.Second), 10).Paths {
		if strings.Contains(c.Name, "token") || strings.ContainsAny(c.Name, "\x1b\x00") {
			t.Errorf("the paths have %q", c.Name)
		}
	}
}

func TestRecentAllocatesNothing(t *testing.T) {
	l := Watched(nil, NewRecent())
	at := start
	write := func() {
		at = at.Add(time.Millisecond)
		if r := (Record{Time: at, Remote: "192.0.2.1", Host: "a.example", Method: "GET", Target: "/p", Proto: "HTTP/1.1", Status: 200, Fast: true}); l.Wants(at, 200, 0) {
			l.Write(&r)
		}
	}
	for range 2000 { // each place of the tail has its buffer, the slowest are known
		write()
	}
	if n := testing.AllocsPerRun(2000, write); n != 0 {
		t.Errorf("a request allocates %v times", n)
	}
}

func BenchmarkRecent(b *testing.B) {
	l := Watched(nil, NewRecent())
	at := start
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(10 * time.Microsecond)
		if l.Wants(at, 200, 0) {
			l.Write(&Record{Time: at, Remote: "192.0.2.1", Host: "a.example", Method: "GET", Target: "/p", Proto: "HTTP/1.1", Status: 200, Fast: true})
		}
	}
}
