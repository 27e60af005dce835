package purge

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func at(b *Index, url string, tags ...string) *Object {
	return &Object{URL: url, Tags: tags, At: b.Now()}
}

// TestMatches says what each kind of selector hits, and what it does not.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		s         Selector
		hit, miss []string
	}{
		{
			Selector{URL: "HTTPS://Example.COM:443/a?b=c#top"},
			[]string{"https://example.com/a?b=c", "https://example.com:443/a?b=c", "https://EXAMPLE.com/a?b=c"},
			[]string{"http://example.com/a?b=c", "https://example.com/a", "https://example.com:8443/a?b=c", "https://example.com/A?b=c", "https://example.com/a?b=c&d"},
		},
		{
			Selector{URL: "example.com/a%2Fb"},
			[]string{"https://example.com/a%2Fb", "http://example.com/a%2Fb", "http://example.com:80/a%2Fb"},
			[]string{"http://example.com/a/b", "http://example.com/a%2fb", "http://example.com:443/a%2Fb"},
		},
		{Selector{URL: "//example.com"}, []string{"http://example.com/", "https://example.com/"}, []string{"https://example.com/a", "https://www.example.com/"}},
		{Selector{URL: "http://example.com?x"}, []string{"http://example.com/?x"}, []string{"http://example.com/"}},
		{Selector{URL: "example.com:443/"}, []string{"https://example.com/"}, []string{"http://example.com/"}},
		{Selector{URL: "http://[2001:DB8::1]:8080/"}, []string{"http://[2001:db8::1]:8080/"}, []string{"http://[2001:db8::1]/"}},
		{Selector{URL: "http://h/" + strings.Repeat("x", 500)}, []string{"http://h/" + strings.Repeat("x", 500)}, []string{"http://h/" + strings.Repeat("x", 501)}},
		{
			Selector{Prefix: "https://Example.com:443/API"},
			[]string{"https://example.com/API", "https://example.com/API/x?y", "https://example.com/APIs"},
			[]string{"https://example.com/api", "http://example.com/API"},
		},
		{Selector{Prefix: "example.com/api/"}, []string{"https://example.com/api/", "http://example.com/api/x"}, []string{"http://example.com/api", "http://www.example.com/api/"}},
		{Selector{Prefix: "https://exam"}, []string{"https://example.com/", "https://exams.org/x"}, []string{"http://example.com/"}},
		{Selector{Prefix: "http"}, []string{"https://httpbin.org/x"}, []string{"https://example.com/"}},
		{Selector{Prefix: "https://example.com:443"}, []string{"https://example.com/a"}, []string{"http://example.com/a"}},
		{
			Selector{Glob: "Example.com/*/feed.???"},
			[]string{"http://example.com/a/b/feed.xml", "https://example.com//feed.rss"},
			[]string{"http://example.com/feed.xml", "http://example.com/a/feed.html"},
		},
		{Selector{Glob: "*.example.com/*"}, []string{"http://a.example.com/", "http://a.b.example.com/x?y"}, []string{"http://example.com/", "http://a.example.org/"}},
		{Selector{Glob: "*Foo*"}, []string{"http://h/aFoob"}, []string{"http://foo/foo"}},
		{Selector{Glob: "https://*/x"}, []string{"https://h/x", "https://h/y/x"}, []string{"http://h/x"}},
		{Selector{Glob: "http?://h/x"}, []string{"https://h/x"}, []string{"http://h/x"}},
		{Selector{Glob: "HTTPS://Host:443/X*"}, []string{"https://host/Xy"}, []string{"https://host/xy", "https://host:8443/Xy"}},
		{Selector{Glob: "*?u=http://x*"}, []string{"https://h/r?u=http://xy"}, []string{"https://h/r?u=https://xy"}},
		{Selector{Glob: "h/a?b"}, []string{"http://h/a?b", "http://h/axb"}, []string{"http://h/ab", "http://h/a?bc"}},
		{Selector{Glob: "*"}, []string{"http://h/", "https://h/x"}, nil},
		{Selector{Host: "Example.com"}, []string{"http://example.com/", "https://example.com:8443/x"}, []string{"http://www.example.com/"}},
		{Selector{Host: "example.com:443"}, []string{"https://example.com/", "http://example.com:443/"}, []string{"http://example.com/", "https://example.com:8443/"}},
		{Selector{Host: "[::1]"}, []string{"http://[::1]:8080/"}, []string{"http://[::2]/"}},
		{Selector{All: true}, []string{"http://h/", "what is not a URL", ""}, nil},
	} {
		if err := c.s.Check(); err != nil {
			t.Errorf("%+v is refused: %v", c.s, err)
		}
		b := New(0)
		var hit, miss []*Object
		for _, u := range c.hit {
			hit = append(hit, at(b, u))
		}
		for _, u := range c.miss {
			miss = append(miss, at(b, u))
		}
		b.Purge(c.s)
		for _, o := range hit {
			if got := b.State(o, nil); got != Stale {
				t.Errorf("%+v leaves %s in state %d", c.s, o.URL, got)
			}
		}
		for _, o := range miss {
			if got := b.State(o, nil); got != Valid {
				t.Errorf("%+v hits %s", c.s, o.URL)
			}
		}
	}
}

func TestHostOfObject(t *testing.T) {
	b := New(0)
	o := &Object{URL: "http://internal/x", Host: "Example.com:8080", At: b.Now()}
	b.Purge(Selector{Host: "internal"})
	if b.State(o, nil) != Valid {
		t.Error("the URL's host counts although another one was given")
	}
	b.Purge(Selector{Host: "example.com:8080"})
	if b.State(o, nil) != Stale {
		t.Error("the object's own host does not count")
	}
}

func TestTags(t *testing.T) {
	b := New(0)
	o := at(b, "http://h/", "post-1", "Front", strings.Repeat("long", 100))
	for _, tag := range []string{"post-2", "front", "post", strings.Repeat("long", 99)} {
		b.Purge(Selector{Tag: tag})
	}
	if b.State(o, nil) != Valid {
		t.Error("another tag hits")
	}
	for _, tag := range o.Tags {
		o.At = b.Now()
		b.Purge(Selector{Tag: " " + tag + " "})
		if b.State(o, nil) != Stale {
			t.Errorf("purging %.20s does not hit", tag)
		}
	}
}

// TestHardBeatsSoft in both orders, within one name and between two, and after
// everything was folded.
func TestHardBeatsSoft(t *testing.T) {
	soft, hard := Selector{Tag: "t"}, Selector{Tag: "t", Hard: true}
	hardHost := Selector{Host: "h", Hard: true}
	for i, order := range [][]Selector{{soft, hard}, {hard, soft}, {soft, hardHost}, {hardHost, soft}, {hardHost, {All: true}}, {{All: true}, hard}} {
		b := New(4)
		o := at(b, "http://h/", "t")
		var checked Time
		for j, s := range order {
			b.Purge(s)
			if got := b.State(o, &checked); j == 1 && got != Gone || got == Valid {
				t.Errorf("order %d: %d after %d purges", i, got, j+1)
			}
		}
		for n := range 50 {
			b.Purge(Selector{Tag: fmt.Sprint(n)})
		}
		if b.State(o, &checked) != Gone {
			t.Errorf("order %d: forgotten", i)
		}
		if b.State(at(b, "http://h/", "t"), nil) != Valid {
			t.Errorf("order %d: what was fetched afterwards is hit", i)
		}
	}
}

// TestFillUnderWay: what was asked for before the purge and came after it.
func TestFillUnderWay(t *testing.T) {
	b := New(0)
	before := b.Now()
	n := b.Purge(Selector{Tag: "t"})
	if n <= before {
		t.Fatalf("purge %d is not after %d", n, before)
	}
	if b.State(&Object{At: before, Tags: []string{"t"}}, nil) != Stale {
		t.Error("a fill that was under way is not hit")
	}
	if b.State(&Object{At: b.Now(), Tags: []string{"t"}}, nil) != Valid {
		t.Error("a fill that began after it is hit")
	}
}

func TestChecked(t *testing.T) {
	b := New(0)
	o := at(b, "http://h/", "t")
	b.Purge(Selector{Tag: "other"})
	var checked Time
	if b.State(o, &checked) != Valid || checked != b.Now() {
		t.Fatalf("checked is %d at %d", checked, b.Now())
	}
	b.Purge(Selector{Tag: "t"})
	for range 2 {
		if b.State(o, &checked) != Stale {
			t.Fatal("what was found valid is not hit any more")
		}
	}
	b.Purge(Selector{Tag: "t", Hard: true})
	if b.State(o, &checked) != Gone {
		t.Error("what was found stale is not gone")
	}
}

// TestFolded: whatever is purged, in whatever numbers, is never Valid again.
func TestFolded(t *testing.T) {
	for _, c := range []struct {
		name string
		s    func(i int) Selector
		n    int
	}{
		{"tag", func(i int) Selector { return Selector{Tag: fmt.Sprint("t", i), Hard: i == 3} }, 100},
		{"url", func(i int) Selector { return Selector{URL: fmt.Sprintf("http://h%d/%d", i%3, i), Hard: i == 3} }, 100},
		{"many hosts", func(i int) Selector { return Selector{URL: fmt.Sprintf("http://h%d/", i)} }, 4*mostFolded + 10},
		{"host", func(i int) Selector { return Selector{Host: fmt.Sprint("h", i), Hard: i == 3} }, 2*mostHosts + 10},
		{"prefix", func(i int) Selector { return Selector{Prefix: fmt.Sprintf("http://h/%d/", i), Hard: i == 3} }, 2 * mostPatterns},
		{"partial prefix", func(i int) Selector { return Selector{Prefix: fmt.Sprintf("http://h%d", i)} }, 2 * mostPatterns},
		{"glob", func(i int) Selector { return Selector{Glob: fmt.Sprintf("h/*/%d", i), Hard: i == 3} }, 2 * mostPatterns},
	} {
		most := 20
		if c.name == "many hosts" {
			most = 2*mostFolded + 2
		}
		b := New(most)
		objects := make([]*Object, c.n)
		for i := range objects {
			o := at(b, "http://elsewhere/")
			switch s := c.s(i); {
			case s.Tag != "":
				o.Tags = []string{"x", s.Tag}
			case s.Host != "":
				o.URL = "http://" + s.Host + "/"
			case s.Glob != "":
				o.URL = "http://" + strings.ReplaceAll(s.Glob, "*", "any")
			default:
				o.URL = s.URL + s.Prefix
			}
			objects[i] = o
			b.Purge(c.s(i))
		}
		for i, o := range objects {
			want := Stale
			if i == 3 {
				want = Gone
			}
			if got := b.State(o, nil); got < want && (c.s(i).Hard || got == Valid) {
				t.Errorf("%s: purge %d of %d is forgotten: %d", c.name, i, c.n, got)
			}
		}
		if got := b.State(at(b, objects[0].URL, objects[0].Tags...), nil); got != Valid {
			t.Errorf("%s: what was fetched after all purges is %d", c.name, got)
		}
		if n := len(b.tags.young.names) + len(b.tags.old.names); n > most {
			t.Errorf("%s: %d tags are remembered, the bound is %d", c.name, n, most)
		}
		if n := len(b.globs.list); n > mostPatterns {
			t.Errorf("%s: %d patterns are remembered", c.name, n)
		}
	}
}

// TestFoldedURLs: who purges many URLs of one host leaves the others alone, and
// what was found valid stays so.
func TestFoldedURLs(t *testing.T) {
	b := New(10)
	other, same := at(b, "http://other/"), at(b, "http://busy/x")
	for i := range 5 {
		b.Purge(Selector{URL: fmt.Sprintf("http://busy/%d", i)})
	}
	seen := at(b, "http://busy/y")
	var checked Time
	b.Purge(Selector{URL: "http://busy/5"})
	if b.State(seen, &checked) != Valid {
		t.Fatal("hit too early")
	}
	for i := range 9 {
		b.Purge(Selector{URL: fmt.Sprintf("http://busy/%d", 6+i)})
	}
	if got := b.State(other, nil); got != Valid {
		t.Errorf("another host is %d", got)
	}
	if got := b.State(same, nil); got != Stale {
		t.Errorf("another URL of the same host is %d", got)
	}
	if got := b.State(seen, &checked); got != Valid {
		t.Errorf("what was known not to be among the forgotten is %d", got)
	}
}

// TestCheck: what is refused says what to do.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		s    Selector
		want string
	}{
		{Selector{}, "nothing to purge"},
		{Selector{Hard: true}, "nothing to purge"},
		{Selector{Tag: "a", All: true}, "more than one"},
		{Selector{URL: "http://a/", Prefix: "b"}, "more than one"},
		{Selector{URL: "/path"}, "no host"},
		{Selector{URL: "ftp://h/"}, "neither http nor https"},
		{Selector{URL: "http://user@h/"}, "not a host"},
		{Selector{URL: "http://bücher.example/"}, "xn--"},
		{Selector{URL: "http://h/a b"}, "%20"},
		{Selector{URL: "http://h/a\r\nb"}, "control character"},
		{Selector{URL: "http://h:x/"}, "host:port"},
		{Selector{URL: "http://::1/"}, "brackets"},
		{Selector{Prefix: "/api"}, "the glob */api*"},
		{Selector{Prefix: "//"}, "empty prefix"},
		{Selector{Prefix: "ftp://h/"}, "neither http nor https"},
		{Selector{Prefix: "h/" + strings.Repeat("x", mostPattern)}, "at most"},
		{Selector{Glob: "/api/*"}, "the glob */api/*"},
		{Selector{Glob: "example.com"}, "example.com/*"},
		{Selector{Glob: "h/*#x"}, "#"},
		{Selector{Glob: "h/" + strings.Repeat("*x", 100)}, "stars"},
		{Selector{Glob: "h/*" + strings.Repeat("x?", 40) + "*"}, "between two stars"},
		{Selector{Host: "*.example.com"}, `the glob "*.example.com/*"`},
		{Selector{Host: "example.com/"}, "not a host"},
		{Selector{Host: "::1"}, "brackets"},
		{Selector{Tag: "  "}, "empty tag"},
	} {
		if err := c.s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want something about %q", c.s, err, c.want)
		}
		b := New(0)
		o := at(b, "http://h/")
		b.Purge(c.s)
		want := Stale
		if c.s.Hard {
			want = Gone
		}
		if got := b.State(o, nil); got != want {
			t.Errorf("a purge that cannot be understood (%+v) leaves objects in state %d", c.s, got)
		}
	}
}

// TestMessage: what another machine's later version may send is not ignored.
func TestMessage(t *testing.T) {
	out, err := json.Marshal(Selector{Tag: "a", Hard: true})
	if err != nil || string(out) != `{"tag":"a","hard":true}` {
		t.Errorf("%s, %v", out, err)
	}
	var s Selector
	if err := json.Unmarshal([]byte(`{"regexp":"x.*","hard":true}`), &s); err != nil {
		t.Fatal(err)
	}
	b := New(0)
	o := at(b, "http://h/")
	b.Purge(s)
	if b.State(o, nil) != Gone {
		t.Error("an unknown kind of selector purges nothing")
	}
}

// TestLives: what At means after a restart, restored or not.
func TestLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := New(0)
		purged, kept := at(first, "http://h/1", "t"), at(first, "http://h/2")
		first.Purge(Selector{Tag: "t", Hard: true})
		after := at(first, "http://h/3", "t")
		saved := first.Save()
		last := first.Purge(Selector{URL: "http://h/2"})
		time.Sleep(time.Minute)

		second := New(0)
		if err := second.Restore(saved); err != nil {
			t.Fatal(err)
		}
		if second.Now() <= last {
			t.Errorf("the second life begins at %d, the first came to %d", second.Now(), last)
		}
		for o, want := range map[*Object]State{purged: Gone, kept: Valid, after: Valid} {
			if got := second.State(o, nil); got != want {
				t.Errorf("%s is %d after the restart, want %d", o.URL, got, want)
			}
		}

		third := New(0)
		if err := third.Restore(append(saved, Record(Selector{URL: "http://h/2"}, last)...)); err != nil {
			t.Fatal(err)
		}
		if got := third.State(kept, nil); got != Stale {
			t.Errorf("a purge that was appended is lost: %d", got)
		}

		fourth := New(0)
		for _, o := range []*Object{purged, kept, after} {
			if got := fourth.State(o, nil); got != Unsure {
				t.Errorf("%s is %d in a life that knows nothing", o.URL, got)
			}
		}
		time.Sleep(time.Minute)
		fifth := New(0)
		if err := fifth.Restore(fourth.Save()); err != nil {
			t.Fatal(err)
		}
		if got := fifth.State(kept, nil); got != Unsure {
			t.Errorf("what was unknown in the last life is %d", got)
		}
	})
}

// TestClockOfTheWallSetBack: no later purge may get a number below an old At.
func TestClockOfTheWallSetBack(t *testing.T) {
	first := New(0)
	first.clock.Add(uint64(time.Hour))
	o := at(first, "http://h/", "t")
	saved := first.Save()

	unrestored := New(0)
	if got := unrestored.State(o, nil); got != Unsure {
		t.Errorf("an object from the future is %d", got)
	}
	second := New(0)
	if err := second.Restore(saved); err != nil {
		t.Fatal(err)
	}
	if got := second.State(o, nil); got != Valid {
		t.Errorf("restored: %d", got)
	}
	second.Purge(Selector{Tag: "t"})
	if got := second.State(o, nil); got != Stale {
		t.Errorf("purged after the restart: %d", got)
	}
}

// TestRestoreRefuses damage anywhere, and then says Unsure.
func TestRestoreRefuses(t *testing.T) {
	b := New(0)
	o := at(b, "http://h/", "t")
	b.Purge(Selector{Tag: "t", Hard: true})
	b.Purge(Selector{Glob: "h/*/x"})
	saved := append(b.Save(), Record(Selector{Host: "g"}, b.Now())...)
	refuse := func(what string, bad []byte) {
		t.Helper()
		b := New(0)
		if b.Restore(bad) == nil {
			t.Errorf("%s is accepted", what)
		} else if b.State(o, nil) != Unsure {
			t.Errorf("%s: an old object is not unsure", what)
		}
	}
	tail := len(Record(Selector{Host: "g"}, b.Now()))
	for i := range saved {
		if i != len(saved)-tail {
			refuse(fmt.Sprintf("a file cut at %d of %d", i, len(saved)), saved[:i])
		}
		for bit := range 8 {
			bad := append([]byte(nil), saved...)
			bad[i] ^= 1 << bit
			refuse(fmt.Sprintf("bit %d of byte %d changed", bit, i), bad)
		}
	}
	used := New(0)
	used.Purge(Selector{All: true})
	if used.Restore(saved) == nil {
		t.Error("an index in use is restored")
	}
}

// TestRestoreIntoLess: an index with less room keeps all purges, if coarser.
func TestRestoreIntoLess(t *testing.T) {
	b := New(1000)
	var objects []*Object
	for i := range 500 {
		long := strings.Repeat("x", i%200)
		objects = append(objects, at(b, fmt.Sprintf("http://h%d/%s", i, long), fmt.Sprint(long, i)))
		b.Purge(Selector{URL: objects[i].URL, Hard: i%5 == 0})
		b.Purge(Selector{Tag: objects[i].Tags[0]})
	}
	small := New(10)
	if err := small.Restore(b.Save()); err != nil {
		t.Fatal(err)
	}
	for i, o := range objects {
		if got, before := small.State(o, nil), b.State(o, nil); got < before {
			t.Errorf("object %d is %d, was %d", i, got, before)
		}
	}
}

// TestAtOnce: all methods at once, for the race detector; and Save holds what
// was purged before it began.
func TestAtOnce(t *testing.T) {
	b := New(64)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			o := at(b, "http://h/", "keep")
			var checked Time
			for i := range 300 {
				tag := fmt.Sprintf("t%d-%d", g, i)
				mine := at(b, "http://h/x", tag)
				b.Purge(Selector{Tag: tag})
				b.Purge(Selector{URL: "http://g/" + tag})
				b.State(o, &checked)
				if b.State(mine, nil) != Stale {
					t.Error("not hit")
				}
				if i%50 != 0 {
					continue
				}
				copied := New(64)
				if err := copied.Restore(b.Save()); err != nil {
					t.Error(err)
				} else if copied.State(mine, nil) != Stale {
					t.Error("not saved")
				}
			}
		})
	}
	wg.Wait()
}
