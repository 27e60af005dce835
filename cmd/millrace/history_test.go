//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/cache/purge"
	"millrace/internal/process/servertest"
)

// historyRounds is how many rounds a schedule has: some faults, and then a time in which
// everything works.
const historyRounds = 3

// TestHistory has three machines share a Redis and a cluster of NATS, with clients that
// change, purge and read pages, and publish to channels and listen there. Meanwhile
// machines, ways and servers fail as a seed says. Then the histories that the clients have
// seen are checked:
//
//   - A read gives no version from before a hard purge that its machine has to obey. The
//     machine that was asked has to at once; another one from the start of its process, or
//     from when it could reach Redis again, if that is later, or else when all works again
//     and it has heard what was purged last.
//   - A publication that was acknowledged has one place, and comes to every subscriber
//     once and in the order of places, wherever that connects. What was acknowledged
//     without a place may be lost with its machine.
//
// With MILLRACE_HISTORY_CLOCKS=1 the machines' clocks are hours apart, and step; that needs
// a program with another package time. MILLRACE_HISTORY=10m does that as long, from another seed each time, and
// MILLRACE_HISTORY_SEED=7 with one seed. Goroutines and networks do the rest: a seed gives
// the same faults and the same clients, but not the same microseconds.
func TestHistory(t *testing.T) {
	t.Parallel() // with what else waits for a program
	program := ""
	if os.Getenv("MILLRACE_HISTORY_CLOCKS") != "" {
		program = steppedProgram(t)
	}
	one := func(seed uint64) bool {
		return t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runHistory(t, seed, program) })
	}
	if text := os.Getenv("MILLRACE_HISTORY_SEED"); text != "" {
		from, to, several := strings.Cut(text, "-")
		first, err := strconv.ParseUint(from, 10, 64)
		last := first
		if several && err == nil {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		if err != nil {
			t.Fatalf("MILLRACE_HISTORY_SEED=%s: a number, or two with - between them", text)
		}
		for seed := first; seed <= last; seed++ {
			one(seed)
		}
		return
	}
	if text := os.Getenv("MILLRACE_HISTORY"); text != "" {
		long, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("MILLRACE_HISTORY: %v", err)
		}
		n := uint64(0)
		for end := time.Now().Add(long); time.Now().Before(end) && !t.Failed(); n++ {
			one(rand.Uint64N(1_000_000))
		}
		t.Logf("%d schedules", n)
		return
	}
	for _, seed := range []uint64{2, 4} { // one and three servers of NATS keep each publication
		one(seed)
	}
}

// histWorld is what a schedule happens to.
type histWorld struct {
	t        *testing.T
	log      *chronicle
	origin   originSite
	machines []*machine
	dbs      [2]*dbServer
	master   int
	streams  *streamServers

	redisFails atomic.Int32 // faults of Redis itself that are not over
}

func runHistory(t *testing.T, seed uint64, program string) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newHistWorld(t, r, program)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	ways := 0
	own := func() *rand.Rand { ways++; return rand.New(rand.NewPCG(seed, uint64(100+ways))) }
	for i, channel := range []string{"news", "chat:1", "news", "chat:1"} {
		v := &view{
			name: fmt.Sprintf("subscriber %d", i), channel: channel, log: w.log,
			ids: map[string]bool{}, known: map[string]bool{}, placed: map[uint64]bool{},
		}
		w.log.views = append(w.log.views, v)
		r := own()
		clients.Go(func() { w.follow(ctx, v, i >= 2, r) })
	}
	for _, v := range w.log.views {
		servertest.Eventually(t, v.name+" has a position", func() bool { v.mu.Lock(); defer v.mu.Unlock(); return v.ready })
	}
	work, rest := context.WithCancel(ctx)
	defer rest()
	var workers sync.WaitGroup
	defer workers.Wait()
	defer rest()
	for i := range w.machines {
		for range 2 {
			r := own()
			workers.Go(func() { w.keepReading(work, i, r) })
		}
	}
	for i := range 2 {
		r := own()
		workers.Go(func() { w.keepPublishing(work, fmt.Sprint("p", i), r) })
	}
	edits, purges := own(), own()
	workers.Go(func() { w.keepEditing(work, edits) })
	workers.Go(func() { w.keepPurging(work, purges) })

	for range historyRounds {
		w.round(r)
		if w.settle(ctx); t.Failed() {
			break
		}
	}
	rest()
	workers.Wait()
	if !t.Failed() {
		w.settle(ctx)
		w.settleChannels(t)
	}
	stop()
	clients.Wait()
	w.judge(seed)
}

// newHistWorld starts servers and machines.
func newHistWorld(t *testing.T, r *rand.Rand, program string) *histWorld {
	ports := freePorts(t, 14)
	w := &histWorld{t: t, dbs: [2]*dbServer{newDB(t, ports[0]), newDB(t, ports[1])}, streams: newStreams(t, ports[2:11])}
	w.log = &chronicle{began: time.Now(), publications: map[string]*publication{}}
	origin := httptest.NewServer(&w.origin)
	t.Cleanup(origin.Close)
	for i := range w.streams.servers {
		w.streams.start(i)
	}
	for _, d := range w.dbs {
		d.start()
	}
	w.dbs[1].follow(t, w.dbs[0])
	replicas := []int{1, 3}[r.IntN(2)]
	w.log.note("each publication is kept by %d servers of NATS", replicas)
	for i := range 3 {
		m := newMachine(t, fmt.Sprint("machine ", i), ports[11+i])
		m.redis = newRelay(t, w.dbs[0].addr())
		var urls []string
		for s := range w.streams.servers {
			way := newRelay(t, w.streams.addr(s))
			m.nats = append(m.nats, way)
			urls = append(urls, "nats://"+way.addr())
		}
		clock := fmt.Sprintf("0:%d,%d:%d", r.IntN(7200)-3600, 2+r.IntN(6), r.IntN(7200)-3600)
		if m.program = program; program != "" {
			m.env = []string{"MILLRACE_TEST_CLOCK=" + clock}
			w.log.note("%s has a clock that is off by seconds: %s", m.name, clock)
		}
		disk := []string{"", "", ", disk: kept"}[r.IntN(3)]
		m.config = fmt.Sprintf(`listen: %s
log: {format: off}
admin: {listen: '%s'}
lane: {off: %v}
sites:
- routes:
    /: {cache: {to: %q, shared: "redis://%s"%s}}
    /live/: {websocket: {channels: {bus: %q, bus_replicas: %d, history: {messages: 10000, age: 1h}}}}
`, m.addr, m.admin, r.IntN(4) == 0, origin.URL, m.redis.addr(), disk, strings.Join(urls, ","), replicas)
		w.machines = append(w.machines, m)
	}
	for _, m := range w.machines {
		m.start()
	}
	servertest.Eventually(t, "the stream has a leader", func() bool { return w.streams.leader("millrace") >= 0 })
	return w
}

// A histFault is something that fails for a while. Two at the same time are of different
// parts.
type histFault struct {
	name string
	part string
	do   func(w *histWorld, hold func())
}

func histFaults(number int) []histFault {
	of := func(name, part string, do func(*histWorld, *machineFault)) histFault {
		return histFault{fmt.Sprintf("%s of machine %d", name, number), part, func(w *histWorld, hold func()) {
			do(w, &machineFault{w.machines[number], number, hold})
		}}
	}
	part := fmt.Sprint("machine ", number)
	way := func(name string, of func(*machine) []*relay, mute bool) histFault {
		return histFault{fmt.Sprintf("%s of machine %d", name, number), part, func(w *histWorld, hold func()) {
			for _, r := range of(w.machines[number]) {
				r.set(!mute, mute)
			}
			hold()
			before := w.log.now()
			for _, r := range of(w.machines[number]) {
				r.set(false, false)
			}
			if w.redisFails.Load() == 0 && !mute && slices.Contains(of(w.machines[number]), w.machines[number].redis) {
				// It knows that it was cut, and asks before it gives what it has.
				w.log.obeyed(number, before, w.log.now(), false)
			}
		}}
	}
	toRedis, toNATS := func(m *machine) []*relay { return []*relay{m.redis} }, func(m *machine) []*relay { return m.nats }
	both := func(m *machine) []*relay { return append([]*relay{m.redis}, m.nats...) }
	return []histFault{
		of("kill -9", part, killed), of("kill -9", part, killed), of("a pause", part, paused), of("a pause", part, paused),
		way("the way to Redis is cut,", toRedis, false), way("the way to Redis is mute,", toRedis, true),
		way("the way to NATS is cut,", toNATS, false), way("the way to NATS is mute,", toNATS, true),
		way("both ways are cut,", both, false),
		of("kill -9, with both ways cut,", part, killedAlone),
		{"Redis is rolled back", "redis", rolledBack},
		{"Redis is rolled back", "redis", rolledBack},
		{"a replica takes over from a dead Redis", "redis", failedOver},
		{"a replica takes over from a Redis that lives", "redis", demoted},
		{"a pause of Redis", "redis", func(w *histWorld, hold func()) { w.hang(w.dbs[w.master].Process, hold) }},
		{"kill -9 of the leader of NATS", "nats", leaderKilled},
		{"kill -9 of the leader of NATS", "nats", leaderKilled},
		{"a pause of the leader of NATS", "nats", func(w *histWorld, hold func()) {
			if i := w.streams.leader("millrace"); i >= 0 {
				w.hang(w.streams.servers[i], hold)
			}
		}},
	}
}

type machineFault struct {
	*machine
	number int
	hold   func()
}

func killed(w *histWorld, f *machineFault) {
	f.kill()
	f.hold()
	w.startAgain(f)
}

// startAgain starts a machine: it has to obey what was announced before.
func (w *histWorld) startAgain(f *machineFault) {
	before := w.log.now()
	f.start()
	w.log.obeyed(f.number, before, w.log.now(), false)
}

// killedAlone has a machine come back while it can reach nobody.
func killedAlone(w *histWorld, f *machineFault) {
	f.kill()
	for _, r := range append([]*relay{f.redis}, f.nats...) {
		r.set(true, false)
	}
	w.startAgain(f)
	f.hold()
	for _, r := range append([]*relay{f.redis}, f.nats...) {
		r.set(false, false)
	}
}

func paused(_ *histWorld, f *machineFault) {
	f.pause(true)
	f.hold()
	f.pause(false)
}

func (w *histWorld) hang(p *servertest.Process, hold func()) {
	p.Signal(syscall.SIGSTOP)
	hold()
	p.Signal(syscall.SIGCONT)
}

// rolledBack has Redis come back from a snapshot, which was taken before.
func rolledBack(w *histWorld, hold func()) {
	d := w.dbs[w.master]
	if answer, err := d.ask("SAVE"); err != nil || !strings.HasPrefix(answer, "+OK") {
		w.t.Errorf("SAVE: %q, %v", answer, err)
	}
	hold()
	d.Kill()
	d.start()
}

// failedOver kills the master, and has its replica take its place, behind the same name.
func failedOver(w *histWorld, hold func()) {
	old := w.dbs[w.master]
	old.Kill()
	w.promote()
	hold()
	old.start()
	old.follow(w.t, w.dbs[w.master])
}

// demoted is failedOver with a master that lives: whoever is connected stays with it, and
// finds a replica there.
func demoted(w *histWorld, hold func()) {
	old := w.dbs[w.master]
	w.promote()
	old.follow(w.t, w.dbs[w.master])
	hold()
}

func (w *histWorld) promote() {
	w.master = 1 - w.master
	if _, err := w.dbs[w.master].ask("REPLICAOF NO ONE"); err != nil {
		w.t.Error(err)
	}
	for _, m := range w.machines {
		m.redis.lead(w.dbs[w.master].addr())
	}
}

func leaderKilled(w *histWorld, hold func()) {
	if i := w.streams.leader("millrace"); i >= 0 {
		w.streams.servers[i].Kill()
		hold()
		w.streams.start(i)
	}
}

// round has one to three things fail, each for a while.
func (w *histWorld) round(r *rand.Rand) {
	var failing sync.WaitGroup
	parts := map[string]bool{}
	for n := 1 + r.IntN(3); n > 0; {
		all := histFaults(r.IntN(len(w.machines)))
		f := all[r.IntN(len(all))]
		begin, long := time.Duration(r.IntN(400))*time.Millisecond, time.Duration(50+r.IntN(1500))*time.Millisecond
		n--
		if parts[f.part] {
			continue
		}
		parts[f.part] = true
		failing.Go(func() {
			time.Sleep(begin)
			w.log.note("%s, for %v", f.name, long)
			if f.part == "redis" {
				w.redisFails.Add(1)
				defer w.redisFails.Add(-1)
			}
			f.do(w, func() { time.Sleep(long) })
			w.log.note("%s is over", f.name)
		})
	}
	failing.Wait()
}

// settle waits until every machine has heard of all purges: nothing fails meanwhile.
func (w *histWorld) settle(ctx context.Context) {
	w.t.Helper()
	before := w.log.now()
	end := time.Now().Add(patience)
	late := func(what string) bool {
		if time.Now().After(end) {
			w.log.fail("after all was mended: %s", what)
			w.t.Fail()
			return true
		}
		time.Sleep(5 * time.Millisecond)
		return false
	}
	for _, m := range w.machines {
		for m.unsent() > 0 {
			if late(m.name + " has purges that it does not send") {
				return
			}
		}
	}
	for by := range w.machines {
		page := pages + by
		for told := false; !told; {
			// Where it is stored the machine has to hear of the purge to see another version.
			for _, m := range w.machines {
				for how := ""; !strings.Contains(how, "hit"); {
					if _, how, _ = m.read(ctx, page, 0); strings.Contains(how, "hit") {
						break
					}
					if late(fmt.Sprintf("%s does not keep %s: %s", m.name, pagePath(page), how)) {
						return
					}
				}
			}
			want := int(w.origin.version[page].Add(1))
			if told = w.purgeAt(ctx, by, purge.Selector{URL: "http://s" + pagePath(page), Hard: true}, nil); !told {
				if late(fmt.Sprintf("machine %d cannot announce a purge", by)) {
					return
				}
				continue
			}
			for _, m := range w.machines {
				for {
					if version, _, err := m.read(ctx, page, 0); err == nil && version >= want {
						break
					}
					if late(fmt.Sprintf("%s does not hear of a purge of machine %d", m.name, by)) {
						return
					}
				}
			}
		}
	}
	now := w.log.now()
	for i := range w.machines {
		w.log.obeyed(i, before, now, true)
	}
	w.log.note("all machines have heard of the purges until %.3fs", before.Seconds())
}

// judge checks the histories, and shows the schedule if something is wrong.
func (w *histWorld) judge(seed uint64) {
	w.t.Helper()
	w.log.mu.Lock()
	faults := append([]string(nil), w.log.wrong...)
	w.log.mu.Unlock()
	faults = append(faults, w.log.checkPages()...)
	resets, published := 0, 0
	for _, channel := range histChannels() {
		truth, epoch, err := w.history(w.machines[0], channel)
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		published += len(truth)
		faults = append(faults, w.log.checkChannel(channel, epoch, truth, w.lost)...)
	}
	for _, v := range w.log.views {
		resets += v.resets
	}
	w.t.Logf("%.1f s, %d reads, %d asked of the origin, %d purges, %d publications, %d resets\n%s", w.log.now().Seconds(),
		len(w.log.reads), w.origin.asked.Load(), len(w.log.purges), published, resets, strings.Join(w.log.faults, "\n"))
	if len(faults) == 0 && !w.t.Failed() {
		return
	}
	w.t.Errorf("%s\n\nonce more:\n\n\tMILLRACE_HISTORY_SEED=%d go test ./cmd/millrace -run 'TestHistory$' -count=1 -v", strings.Join(faults, "\n"), seed)
	for _, m := range w.machines {
		w.t.Logf("%s, %s\n%s", m.name, m.config, m.log)
	}
}
