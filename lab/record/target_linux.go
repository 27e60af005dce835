package record

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"
)

// maxProcesses bounds a target: no server forks so many workers, a runaway
// does.
const maxProcesses = 4096

// A usage is what a process used: it and the children that it waited for.
type usage struct {
	cpu, user, system time.Duration
	transfers         transfers
}

func (u usage) add(v usage) usage {
	return usage{
		u.cpu + v.cpu, u.user + v.user, u.system + v.system,
		transfers{
			u.transfers.readCalls + v.transfers.readCalls, u.transfers.writeCalls + v.transfers.writeCalls,
			u.transfers.readBytes + v.transfers.readBytes, u.transfers.writeBytes + v.transfers.writeBytes,
		},
	}
}

// A process is one that belongs to a target.
type process struct {
	pid      int
	parent   int
	start    uint64
	used     usage            // as seen last
	switched map[int]switches // by thread, as seen last
	stat     stat             // as seen last
}

// A target is the part of Target that knows the system. Its caller lets one
// method run at a time.
type target struct {
	known map[int]*process // alive, or dead and not waited for
	order []int            // of known: parents stand before their children
	// lost is what processes used that have ended and that no parent's
	// counters hold.
	lost         usage
	lostSwitches switches // those of ended threads, which no other counters hold
	base         Reading  // at Open
	last         Reading  // what was given out last, so that counters only grow
	counters     counters
	missing      []string
	closed       bool
	listed       bool // this kernel lists children by thread (CONFIG_PROC_CHILDREN)
	buf          []byte
}

// openTarget begins to watch.
func openTarget(pids []int, traced bool) (*target, error) {
	_, err := os.Stat(procFile(os.Getpid(), "task/"+strconv.Itoa(os.Getpid())+"/children"))
	t := &target{known: map[int]*process{}, listed: err == nil}
	for _, pid := range pids {
		if err := t.add(pid); err != nil {
			return nil, fmt.Errorf("watching process %d: %w", pid, err)
		}
	}
	var missing []string
	if t.counters, missing, err = openCounters(t.threads, traced); err != nil {
		return nil, fmt.Errorf("watching processes: %w", err)
	}
	t.missing = append(t.unreadable(), missing...)
	t.base = t.sum()
	return t, nil
}

func (t *target) close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.counters.close()
	return nil
}

// threads looks at the target and lists its threads.
func (t *target) threads() ([]int, error) {
	if err := t.look(); err != nil {
		return nil, err
	}
	var all []int
	for _, p := range t.known {
		all = slices.AppendSeq(all, maps.Keys(p.switched))
	}
	return all, nil
}

// add takes a process in; one that has ended is an error.
func (t *target) add(pid int) error {
	if t.known[pid] != nil {
		return nil
	}
	if pid <= 0 {
		return errors.New("process ids are above 0")
	}
	s, err := readStat(pid, &t.buf)
	switch {
	case gone(err):
		return errors.New("there is no such process")
	case err != nil:
		return err
	case s.dead():
		return errors.New("it has ended already")
	case len(t.known) == maxProcesses:
		return fmt.Errorf("the target has over %d processes", maxProcesses)
	}
	t.known[pid] = &process{pid: pid, parent: s.Parent, start: s.Start, stat: s, switched: map[int]switches{}}
	t.order = append(t.order, pid)
	return nil
}

// look reads all processes of the target, finds new children, and settles what
// those used that have ended.
func (t *target) look() error {
	var byParent map[int][]int
	if !t.listed {
		var err error
		if byParent, err = familyTree(&t.buf); err != nil {
			return err
		}
	}
	var ended []*process
	for i := 0; i < len(t.order); i++ { // grows as children are found
		p := t.known[t.order[i]]
		children, err := t.update(p)
		if gone(err) {
			ended = append(ended, p)
			continue
		}
		if err != nil {
			return err
		}
		for _, child := range append(children, byParent[p.pid]...) {
			if t.known[child] == nil && len(t.known) == maxProcesses {
				return fmt.Errorf("the target has over %d processes", maxProcesses)
			}
			_ = t.add(child) // fails where it has ended meanwhile
		}
	}
	if len(ended) > 0 {
		t.settle(ended)
	}
	return nil
}

// update reads one process and lists its children.
func (t *target) update(p *process) (children []int, err error) {
	s, err := readStat(p.pid, &t.buf)
	if err != nil {
		return nil, err
	}
	if s.Start != p.start {
		return nil, fs.ErrNotExist // another one has its number now
	}
	cpu, err := processClock(p.pid)
	if err != nil {
		return nil, err
	}
	p.stat, p.parent = s, s.Parent
	p.used.cpu = cpu + s.Waited + s.WaitedS
	p.used.user = s.User + s.Waited
	p.used.system = s.System + s.WaitedS
	if text, err := readFile(procFile(p.pid, "io"), &t.buf); err == nil {
		if p.used.transfers, err = parseIO(text); err != nil {
			return nil, fmt.Errorf("reading /proc/%d/io: %w", p.pid, err)
		}
	}
	return t.updateThreads(p)
}

// updateThreads reads the context switches of a process's threads, and the
// children of each: /proc lists both by thread only.
func (t *target) updateThreads(p *process) (children []int, err error) {
	threads, err := numbers(procFile(p.pid, "task"))
	if err != nil {
		return nil, err
	}
	seen := make(map[int]switches, len(threads))
	for _, tid := range threads {
		dir := procFile(p.pid, "task/"+strconv.Itoa(tid))
		text, err := readFile(dir+"/status", &t.buf)
		if err != nil {
			continue // it ended meanwhile
		}
		now, err := parseSwitches(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s/status: %w", dir, err)
		}
		if before, ok := p.switched[tid]; ok && now.voluntary >= before.voluntary {
			delete(p.switched, tid) // the others have ended, or passed on their number
		}
		seen[tid] = now
		if !t.listed {
			continue
		}
		if text, err := readFile(dir+"/children", &t.buf); err == nil {
			own, err := parseNumbers(text)
			if err != nil {
				return nil, fmt.Errorf("reading %s/children: %w", dir, err)
			}
			children = append(children, own...)
		}
	}
	t.loseSwitches(p)
	p.switched = seen
	return children, nil
}

// loseSwitches keeps the context switches of ended threads.
func (t *target) loseSwitches(p *process) {
	for _, s := range p.switched {
		t.lostSwitches.voluntary += s.voluntary
		t.lostSwitches.involuntary += s.involuntary
	}
}

// settle takes processes out that have ended and keeps what they used, unless
// the counters of a living forefather hold it: a process that waits for a child
// takes over what that used (getrusage(2), RUSAGE_CHILDREN; /proc/PID/io does
// the same). Of several generations that ended between two looks each is taken
// to have waited for its own.
func (t *target) settle(ended []*process) {
	over := make(map[int]*process, len(ended))
	for _, p := range ended {
		over[p.pid] = p
		delete(t.known, p.pid)
		t.loseSwitches(p)
	}
	t.order = slices.DeleteFunc(t.order, func(pid int) bool { return over[pid] != nil })
	for _, p := range ended {
		heir := p.parent
		for range ended { // no chain is longer
			if over[heir] == nil {
				break
			}
			heir = over[heir].parent
		}
		if t.known[heir] == nil || ignoresChildren(heir, &t.buf) {
			t.lost = t.lost.add(p.used)
		}
	}
}

// sum is the target's reading without what comes before Open.
func (t *target) sum() Reading {
	used, switched := t.lost, t.lostSwitches
	r := Reading{At: time.Now(), PSS: 0}
	for _, p := range t.known {
		used = used.add(p.used)
		for _, s := range p.switched {
			switched.voluntary += s.voluntary
			switched.involuntary += s.involuntary
		}
		if p.stat.dead() {
			continue
		}
		r.Processes++
		r.Threads += p.stat.Threads
		r.RSS += uint64(p.stat.RSS) * uint64(os.Getpagesize())
	}
	r.CPU, r.User, r.System = used.cpu, used.user, used.system
	r.Voluntary, r.Involuntary = switched.voluntary, switched.involuntary
	r.ReadCalls, r.WriteCalls = used.transfers.readCalls, used.transfers.writeCalls
	r.ReadBytes, r.WriteBytes = used.transfers.readBytes, used.transfers.writeBytes
	return r
}

// read takes a reading.
func (t *target) read(pss bool) (Reading, error) {
	if t.closed {
		return Reading{}, errors.New("the target is closed")
	}
	if err := t.look(); err != nil {
		return Reading{}, err
	}
	r := t.sum().Sub(t.base)
	if err := t.counters.read(&r); err != nil {
		return Reading{}, err
	}
	r = r.atLeast(t.last)
	t.last = r
	if r.Processes == 0 {
		return r, ErrEnded
	}
	for pid, p := range t.known {
		if p.stat.dead() {
			continue
		}
		// Where these may not be read, missing says so; one that just ended has
		// nothing open.
		if n, err := countFiles(pid); err == nil {
			r.Files += n
		}
		if !pss {
			continue
		}
		if text, err := readFile(procFile(pid, "smaps_rollup"), &t.buf); err == nil {
			if _, proportional, err := parseRollup(text); err == nil {
				r.PSS += proportional
			}
		}
	}
	return r, nil
}

// unreadable says what /proc does not show of the target's processes.
func (t *target) unreadable() []string {
	opens := func(name string) func(int) error {
		return func(pid int) error {
			_, err := readFile(procFile(pid, name), &t.buf)
			return err
		}
	}
	var missing []string
	for _, file := range []struct {
		what string
		read func(pid int) error
	}{
		{"reads and writes", opens("io")},
		{"open files", func(pid int) error { _, err := countFiles(pid); return err }},
		{"PSS", opens("smaps_rollup")},
	} {
		for _, pid := range t.order {
			err := file.read(pid)
			if err == nil || t.known[pid].stat.dead() || gone(err) && t.ended(pid) {
				continue
			}
			advice := ""
			if errors.Is(err, fs.ErrPermission) {
				advice = "; run this as the process's user or as root"
			}
			missing = append(missing, fmt.Sprintf("%s: %v%s", file.what, err, advice))
			break // one line each
		}
	}
	return missing
}

// ended reports whether a process is no longer there.
func (t *target) ended(pid int) bool {
	_, err := readStat(pid, &t.buf)
	return gone(err)
}
