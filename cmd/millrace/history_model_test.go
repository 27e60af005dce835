//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// chronicle is what happened, as its clients saw it. Times are since it began.
type chronicle struct {
	began time.Time

	mu           sync.Mutex
	edits        []edit
	purges       []*purgeCall
	reads        []pageRead
	publications map[string]*publication // by id
	views        []*view
	faults       []string
	wrong        []string // what no model is needed for
}

// edit is a page's new version at the origin.
type edit struct {
	page, version int
	call, done    time.Duration
}

// purgeCall is a hard purge that was acknowledged.
type purgeCall struct {
	pages []int
	by    int // the machine that was asked
	call  time.Duration
	done  time.Duration
	told  bool // the others were, it said
	what  string
	// due is from when on each machine must obey; 0: nothing says when.
	due []time.Duration
}

// pageRead is a read that was answered with 200.
type pageRead struct {
	machine, page, version int
	call, done             time.Duration
	how                    string // Cache-Status
}

// publication is one that was tried.
type publication struct {
	id, channel string
	machine     int // that acknowledged it
	life        int // of that machine
	call, done  time.Duration
	acked       bool
	offset      uint64 // 0: it had none yet
	epoch       string
}

func (c *chronicle) now() time.Duration { return time.Since(c.began) }

// note writes down a fault of the schedule.
func (c *chronicle) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf("%7.3fs ", c.now().Seconds())+fmt.Sprintf(format, args...))
}

// fail writes down what is wrong whatever else happened.
func (c *chronicle) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf("%7.3fs ", c.now().Seconds())+fmt.Sprintf(format, args...))
}

// obeyed says that from now on a machine must obey all purges that were acknowledged
// before a moment. Those that others were not told of count only if all is true.
func (c *chronicle) obeyed(machine int, before, from time.Duration, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.purges {
		if p.due[machine] == 0 && p.done < before && (p.told || all) {
			p.due[machine] = from
		}
	}
}

// Steps of the model of a page, as one machine shows it.
const (
	stepEdit  = 'e'
	stepPurge = 'p'
	stepRead  = 'r'
)

type pageStep struct {
	what    byte
	machine int
	page    int
	version int // of an edit; the least that may be read behind a purge
	why     string
}

// pageState is a page: its version at the origin, and the oldest that the machine may
// still give.
type pageState struct{ version, floor int }

// pageModel: a read gives a version that is not older than the last purge that the
// machine has to obey, and not newer than the origin's.
func pageModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return pageState{} },
		Step: func(state, input, output any) (bool, any) {
			p := state.(pageState)
			switch in := input.(pageStep); in.what {
			case stepEdit:
				p.version = in.version
			case stepPurge:
				p.floor = max(p.floor, in.version)
			case stepRead:
				got := output.(int)
				return p.floor <= got && got <= p.version, p
			}
			return true, p
		},
	}
}

// pageHistories are the operations on each page at each machine.
func (c *chronicle) pageHistories() map[[2]int][]porcupine.Operation {
	all := map[[2]int][]porcupine.Operation{}
	versions := map[int][]edit{}
	for _, e := range c.edits {
		versions[e.page] = append(versions[e.page], e)
	}
	// known is the latest version that was surely there at a moment.
	known := func(page int, at time.Duration) (v int) {
		for _, e := range versions[page] {
			if e.done < at {
				v = max(v, e.version)
			}
		}
		return v
	}
	add := func(client int, in pageStep, call, done time.Duration, out int) {
		key := [2]int{in.machine, in.page}
		all[key] = append(all[key], porcupine.Operation{ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(done)})
	}
	// A purge takes effect when it is due: what comes before may be old or new. Of those
	// that are due together the strictest counts, or there were too many orders.
	type moment struct {
		machine, page int
		due           time.Duration
	}
	strictest := map[moment]pageStep{}
	for _, p := range c.purges {
		for machine, due := range p.due {
			for _, page := range p.pages {
				at, version := moment{machine, page, due}, known(page, p.call)
				if due > 0 && version >= strictest[at].version {
					why := fmt.Sprintf("%s at %.3fs by %d, due %.3fs", p.what, p.done.Seconds(), p.by, due.Seconds())
					strictest[at] = pageStep{stepPurge, machine, page, version, why}
				}
			}
		}
	}
	for at, step := range strictest {
		add(0, step, at.due-1, at.due, 0)
	}
	for _, r := range c.reads {
		add(2, pageStep{what: stepRead, machine: r.machine, page: r.page, why: r.how}, r.call, r.done, r.version)
	}
	for key := range all {
		for _, e := range versions[key[1]] {
			add(1, pageStep{stepEdit, key[0], e.page, e.version, ""}, e.call, e.done, 0)
		}
	}
	return all
}

// checkPages is what is wrong with the reads.
func (c *chronicle) checkPages() (faults []string) {
	for key, history := range c.pageHistories() {
		switch porcupine.CheckOperationsTimeout(pageModel(), history, time.Minute) {
		case porcupine.Unknown:
			faults = append(faults, fmt.Sprintf("machine %d, %s: whether its reads were right is not known after a minute", key[0], pagePath(key[1])))
		case porcupine.Illegal:
			faults = append(faults, fmt.Sprintf("machine %d, %s: a read gave an older version than a purge allows, or one that was not there yet: %s", key[0], pagePath(key[1]), explain(history)))
		}
	}
	slices.Sort(faults)
	return faults
}

// explain shows the first read that no order allows, and what made it so.
func explain(history []porcupine.Operation) string {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
	for n := range history {
		if porcupine.CheckOperationsTimeout(pageModel(), history[:n+1], 10*time.Second) != porcupine.Illegal {
			continue
		}
		last := history[n]
		text := fmt.Sprintf("read from %.3fs to %.3fs: version %v, %s", seconds(last.Call), seconds(last.Return), last.Output, last.Input.(pageStep).why)
		for _, o := range history[:n] {
			if in := o.Input.(pageStep); in.what == stepPurge && o.Return <= last.Call && in.version > last.Output.(int) {
				return text + "; version " + fmt.Sprint(in.version) + " was there when it was purged: " + in.why
			}
		}
		return text
	}
	return "only all of it is wrong"
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

// placedAt is a publication as the history has it at the end.
type placedAt struct {
	offset uint64
	id     string
}

// logStep appends the publication that is there as number rank at the end, or sees it.
type logStep struct {
	append bool
	rank   int
}

// logModel is a channel: a log to which publications are appended. Whoever sees one
// sees it after it was appended.
func logModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			length, in := state.(int), input.(logStep)
			if in.append {
				return in.rank == length+1, in.rank
			}
			return in.rank <= length, length
		},
	}
}

// checkChannel is what is wrong with a channel, of which truth is the history at the end.
// lost reports whether the process that acknowledged a publication without a place has
// ended since.
func (c *chronicle) checkChannel(channel, epoch string, truth []placedAt, lost func(*publication) bool) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, channel+": "+fmt.Sprintf(format, args...)) }
	places, ranks := map[string]uint64{}, map[string]int{}
	var history []porcupine.Operation
	end := int64(c.now())
	for i, p := range truth {
		if places[p.id] != 0 {
			bad("%s is there twice, at %d and %d", p.id, places[p.id], p.offset)
		}
		if i > 0 && p.offset <= truth[i-1].offset {
			bad("%d stands behind %d", p.offset, truth[i-1].offset)
		}
		places[p.id], ranks[p.id] = p.offset, i+1
		known := c.publications[p.id]
		if known == nil {
			bad("%s at %d was never published", p.id, p.offset)
			known = &publication{}
		}
		done := end
		if known.acked && known.offset > 0 {
			done = int64(known.done)
		}
		history = append(history, porcupine.Operation{ClientId: 0, Input: logStep{true, i + 1}, Call: int64(known.call), Return: done})
	}
	for _, p := range c.publications {
		switch place := places[p.id]; {
		case p.channel != channel || !p.acked:
		case p.offset > 0 && p.epoch != "" && p.epoch != epoch:
			bad("%s was acknowledged at %d of %s, and the stream is %s", p.id, p.offset, p.epoch, epoch)
		case p.offset > 0 && place != p.offset:
			bad("%s was acknowledged at %d, and is at %d", p.id, p.offset, place)
		case place == 0 && !lost(p):
			bad("%s was acknowledged at %.3fs by machine %d without a place, and has none", p.id, p.done.Seconds(), p.machine)
		}
	}
	for _, v := range c.views {
		if v.channel != channel {
			continue
		}
		seen := map[string]bool{}
		for _, s := range v.got {
			switch place := places[s.id]; {
			case seen[s.id]:
				bad("%s: %s came twice, now at %d", v.name, s.id, s.offset)
			case place == 0 && s.offset > 0:
				bad("%s: %s came at %d, and is not in the history", v.name, s.id, s.offset)
			case place == 0 && !lost(c.publications[s.id]):
				bad("%s: %s came without a place, and has none", v.name, s.id)
			case s.offset > 0 && s.offset != place:
				bad("%s: %s came at %d, and is at %d", v.name, s.id, s.offset, place)
			case s.offset > 0:
				history = append(history, porcupine.Operation{ClientId: 1, Input: logStep{false, ranks[s.id]}, Call: int64(s.at), Return: int64(s.at) + 1})
			}
			seen[s.id] = true
		}
		if missing := slices.DeleteFunc(slices.Clone(truth), func(p placedAt) bool { return seen[p.id] }); len(missing) > 0 && v.resets == 0 {
			bad("%s: %d of %d never came, the first is %v; %s", v.name, len(missing), len(truth), missing[0], v.state()+"\n"+v.around(missing[0].offset))
		}
	}
	switch porcupine.CheckOperationsTimeout(logModel(), history, time.Minute) {
	case porcupine.Unknown:
		bad("whether publications have one order is not known after a minute")
	case porcupine.Illegal:
		bad("publications have no order in which each was there when it was acknowledged, and seen afterwards")
	}
	return faults
}

// TestHistoryModels: the models find what they are for.
func TestHistoryModels(t *testing.T) {
	ms := time.Millisecond
	pages := func(change func(*chronicle)) string {
		c := &chronicle{began: time.Now()}
		c.edits = []edit{{0, 1, 0, 1 * ms}, {0, 2, 10 * ms, 11 * ms}}
		c.purges = []*purgeCall{{pages: []int{0}, by: 0, call: 12 * ms, done: 14 * ms, told: true, due: []time.Duration{14 * ms, 0}}}
		c.reads = []pageRead{{0, 0, 1, 5 * ms, 6 * ms, ""}, {0, 0, 1, 13 * ms, 15 * ms, ""}, {0, 0, 2, 16 * ms, 17 * ms, ""}, {1, 0, 1, 16 * ms, 17 * ms, ""}}
		change(c)
		return strings.Join(c.checkPages(), "\n")
	}
	if got := pages(func(*chronicle) {}); got != "" {
		t.Errorf("a history that is right: %s", got)
	}
	for want, change := range map[string]func(*chronicle){
		"machine 0":   func(c *chronicle) { c.reads = append(c.reads, pageRead{0, 0, 1, 18 * ms, 19 * ms, ""}) },
		"machine 1":   func(c *chronicle) { c.obeyed(1, 15*ms, 15*ms, false) },
		"not there":   func(c *chronicle) { c.reads = append(c.reads, pageRead{1, 0, 2, 8 * ms, 9 * ms, ""}) },
		"version 2 w": func(c *chronicle) { c.reads[2].version = 1 },
	} {
		if got := pages(change); !strings.Contains(got, want) {
			t.Errorf("%s: %q", want, got)
		}
	}

	channel := func(change func(*chronicle, *[]placedAt)) string {
		c := &chronicle{began: time.Now().Add(-time.Minute), publications: map[string]*publication{
			"a": {id: "a", channel: "x", call: 1 * ms, done: 2 * ms, acked: true, offset: 1, epoch: "e"},
			"b": {id: "b", channel: "x", call: 3 * ms, done: 4 * ms, acked: true, offset: 3, epoch: "e"},
			"c": {id: "c", channel: "x", call: 3 * ms, done: 4 * ms, acked: true},
			"d": {id: "d", channel: "x", call: 5 * ms},
		}}
		truth := []placedAt{{1, "a"}, {3, "b"}, {4, "c"}}
		c.views = []*view{{name: "one", channel: "x", got: []shown{{1, "a", 2 * ms}, {0, "c", 4 * ms}, {3, "b", 5 * ms}}}}
		change(c, &truth)
		return strings.Join(c.checkChannel("x", "e", truth, func(*publication) bool { return false }), "\n")
	}
	if got := channel(func(*chronicle, *[]placedAt) {}); got != "" {
		t.Errorf("a channel that is right: %s", got)
	}
	for want, change := range map[string]func(*chronicle, *[]placedAt){
		"is at 0":          func(_ *chronicle, truth *[]placedAt) { *truth = append((*truth)[:1], (*truth)[2]) },
		"has none":         func(_ *chronicle, truth *[]placedAt) { *truth = (*truth)[:2] },
		"there twice":      func(_ *chronicle, truth *[]placedAt) { *truth = append(*truth, placedAt{5, "a"}) },
		"never published":  func(_ *chronicle, truth *[]placedAt) { *truth = append(*truth, placedAt{5, "z"}) },
		"came twice":       func(c *chronicle, _ *[]placedAt) { c.views[0].got = append(c.views[0].got, shown{1, "a", 6 * ms}) },
		"never came":       func(c *chronicle, _ *[]placedAt) { c.views[0].got = c.views[0].got[:2] },
		"of f, and the st": func(c *chronicle, _ *[]placedAt) { c.publications["a"].epoch = "f" },
		"no order": func(c *chronicle, truth *[]placedAt) {
			c.publications["a"].offset, (*truth)[2] = 4, placedAt{4, "a"}
			(*truth)[0].id, c.views[0].got[0] = "c", shown{4, "a", 9 * ms}
		},
		"no order in": func(c *chronicle, _ *[]placedAt) { c.views[0].got[2].at = 1 * ms },
	} {
		if got := channel(change); !strings.Contains(got, want) {
			t.Errorf("%s: %q", want, got)
		}
	}
}
