package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"millrace/lab/gate"
	"millrace/lab/load"
	"millrace/lab/record"
)

// placeboMark ends the name of a placebo: nginx′ is nginx once more.
const placeboMark = "′"

// A runner is one arm, or the placebo, while the trial lasts.
type runner struct {
	Arm
	of     string // the arm's name, of which this may be the placebo
	in     *Instance
	target *record.Target // nil: its costs are unknown
	shared bool           // in belongs to the arm itself: a placebo of a fixed arm
}

// A trial is a plan being carried out.
type trial struct {
	plan    Plan
	res     *record.Result
	watch   record.Watch
	random  *rand.Rand
	began   time.Time
	runners []*runner
	blocks  int // finished
	look    int // from 1

	mu      sync.Mutex // guards slots and watch while arms work together
	slots   []gate.Slot
	answers gate.Answers
	spent   time.Duration // in blocks, without the windows and warm-ups themselves
	length  time.Duration // of windows, as it was last worked out
	seen    map[string]bool
	repeats repeats
}

func newTrial(plan Plan, res *record.Result, watch record.Watch) *trial {
	plan.PerRestart = max(1, plan.PerRestart)
	t := &trial{
		plan: plan, res: res, watch: watch,
		random: rand.New(rand.NewPCG(plan.Seed, 0x6d696c6c)), // a shuffle that must be repeatable
		began:  time.Now(), look: 1,
		answers: gate.Answers{}, seen: map[string]bool{},
	}
	if res.Started.IsZero() {
		res.Started = t.began
	}
	res.Machine, res.Seed = record.ReadMachine(), plan.Seed
	for _, a := range plan.Arms {
		res.Arms = append(res.Arms, record.Arm{
			Name: a.Name, About: a.About, Command: a.Command, Version: a.Version, Size: a.Size, Skipped: a.Skipped,
		})
		if a.Skipped != "" {
			t.note(fmt.Sprintf("%s was left out: %s", a.Name, a.Skipped))
			continue
		}
		t.runners = append(t.runners, &runner{Arm: a, of: a.Name})
	}
	t.addPlacebo()
	if plan.Pooled != "" {
		res.Workloads = append(res.Workloads, record.Workload{Name: plan.Pooled, About: "the workloads below together, block by block"})
	}
	for _, w := range plan.Workloads {
		res.Workloads = append(res.Workloads, record.Workload{Name: w.Name, About: w.About})
	}
	return t
}

// addPlacebo puts a second instance of an arm beside the others.
func (t *trial) addPlacebo() {
	if t.plan.Placebo == "-" || len(t.runners) == 0 {
		return
	}
	original := t.runners[0]
	for _, r := range t.runners {
		if r.Name == t.plan.Placebo {
			original = r
		}
	}
	p := &runner{Arm: original.Arm, of: original.Name, shared: original.Fixed}
	p.Name = original.Name + placeboMark
	t.runners = append(t.runners, p)
	t.res.Arms = append(t.res.Arms, record.Arm{
		Name: p.Name, About: "the same as " + p.of + " once more, to see how far apart two of the same are", Placebo: p.of,
	})
}

// baseline is the arm that the others are held against; nil when none runs.
func (t *trial) baseline() *runner {
	if len(t.runners) == 0 {
		return nil
	}
	return t.runners[0]
}

func (t *trial) lastBlock() int { return t.plan.Blocks[len(t.plan.Blocks)-1] }

// block measures every arm on every workload once.
func (t *trial) block(ctx context.Context) error {
	if len(t.runners) < 2 || t.runners[1].of == t.runners[0].of {
		return errors.New("nothing to compare: all arms but one were left out (see the notes)")
	}
	began := time.Now()
	machine := gate.Meter{Everybody: true}
	machine.Window(true)
	if t.blocks%t.plan.PerRestart == 0 {
		if err := t.restart(ctx); err != nil {
			return err
		}
	}
	for _, r := range t.runners {
		machine.Ours = append(machine.Ours, r.in.PIDs...)
	}
	slot, windows, first := t.slotLength(), time.Duration(0), len(t.slots)
	var samples []record.Sample
	for _, w := range t.plan.Workloads {
		if w.Blocks > 0 && t.blocks >= w.Blocks {
			continue
		}
		order := t.takingPart(w)
		t.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		length := slot
		if w.Load.Requests > 0 {
			length = t.plan.Slot // the last answer ends it: cut shorter, there would be none
		}
		if w.Slot > 0 {
			length = w.Slot
		}
		got, err := t.workload(ctx, order, w, length)
		if err != nil {
			return err
		}
		samples = append(samples, got...)
		for _, s := range got {
			if w.Task == nil {
				windows += time.Duration(s.Seconds*float64(time.Second)) + t.plan.Warmup
			}
		}
	}
	machine.Window(false)
	for i := range t.slots[first:] {
		t.slots[first+i].Others, t.slots[first+i].Takers = machine.Others(), machine.Takers()
	}
	if t.disturbed(t.slots[first:], time.Since(began)) {
		t.slots = t.slots[:first] // it is measured again
		return nil
	}
	// Only whole blocks count: half of one has nothing to be compared with.
	t.res.Samples = append(t.res.Samples, samples...)
	t.blocks++
	t.spent += max(0, time.Since(began)-windows)
	return nil
}

// workload has arms do one workload, one after the other or all at once.
func (t *trial) workload(ctx context.Context, order []*runner, w Workload, length time.Duration) ([]record.Sample, error) {
	samples := make([]record.Sample, len(order))
	errs := make([]error, len(order))
	var all sync.WaitGroup // of one goroutine for each arm, where they work together
	for i, r := range order {
		if w.Together {
			all.Go(func() { samples[i], errs[i] = t.slot(ctx, r, w, length) })
		} else if samples[i], errs[i] = t.slot(ctx, r, w, length); errs[i] != nil {
			return nil, errs[i]
		}
	}
	all.Wait()
	for i := range samples {
		samples[i].Order = i
	}
	return samples, errors.Join(errs...)
}

func (t *trial) takingPart(w Workload) []*runner {
	return slices.DeleteFunc(slices.Clone(t.runners), func(r *runner) bool {
		idle := r.Name != r.of && len(t.plan.decide(w)) == 0 // a placebo, where there is nothing to hold against it
		return idle || w.Arms != nil && !slices.Contains(w.Arms, r.of)
	})
}

// restart starts all arms anew, but those that are not ours to start.
func (t *trial) restart(ctx context.Context) error {
	if err := t.stopAll(func(r *runner) bool { return !r.Fixed }); err != nil {
		return err
	}
	for _, r := range t.runners {
		if r.in != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.shared {
			for _, original := range t.runners {
				if original.Name == r.of {
					r.in, r.target = original.in, original.target
				}
			}
			continue
		}
		if err := t.start(ctx, r); err != nil {
			return fmt.Errorf("starting %s: %w", r.Name, err)
		}
	}
	return nil
}

func (t *trial) start(ctx context.Context, r *runner) error {
	if !t.seen[r.Name] {
		t.seen[r.Name] = true
		t.emit(record.Event{Kind: record.EventStep, Arm: r.Name, Text: "starting " + r.Name})
	}
	in, err := r.Start(ctx)
	if err != nil {
		return err
	}
	r.in = in
	if len(in.PIDs) == 0 {
		if in.Reports {
			return nil
		}
		t.note(fmt.Sprintf("what %s costs is unknown: its processes are not on this machine or may not be looked at", r.of))
		return nil
	}
	if r.target, err = record.Open(in.PIDs...); err != nil {
		return err
	}
	for _, missing := range r.target.Missing() {
		t.note(missing)
	}
	return nil
}

// stop ends every arm at the end of the trial.
func (t *trial) stop() error { return t.stopAll(func(*runner) bool { return true }) }

func (t *trial) stopAll(which func(*runner) bool) error {
	var all error
	for _, r := range slices.Backward(t.runners) {
		if r.in == nil || !which(r) {
			continue
		}
		in, target := r.in, r.target
		r.in, r.target = nil, nil
		if r.shared {
			continue
		}
		if target != nil {
			all = errors.Join(all, target.Close())
		}
		if in.Stop != nil {
			if err := in.Stop(); err != nil {
				all = errors.Join(all, fmt.Errorf("%s: %w", r.Name, err))
			}
		}
	}
	return all
}

// slotLength is how long windows may be so that the budget lasts for the first look.
// For those that come after it, as long as there is time, they stay as long as they were.
func (t *trial) slotLength() time.Duration {
	if t.plan.Budget == 0 {
		return t.plan.Slot
	}
	if t.look > 1 && t.length > 0 {
		return t.length
	}
	perBlock := 0
	for _, w := range t.plan.Workloads {
		if w.Task == nil && w.Slot == 0 && (w.Blocks == 0 || t.blocks < w.Blocks) { // the others take the time that they take
			perBlock += len(t.takingPart(w))
		}
	}
	if perBlock == 0 {
		return t.plan.Slot
	}
	left := time.Duration(max(1, t.plan.Blocks[0]-t.blocks))
	available := max(0, t.plan.Budget-time.Since(t.began)) / left
	// What a block costs beside its windows: as measured, and before anything
	// is measured, a fair guess of opening connections and starting servers.
	overhead := time.Duration(perBlock) * 60 * time.Millisecond
	if t.blocks > 0 {
		overhead = t.spent / time.Duration(t.blocks)
	}
	length := (available-overhead)/time.Duration(perBlock) - t.plan.Warmup
	t.length = min(max(length, MinSlot), t.plan.Slot)
	return t.length
}

func (t *trial) overBudget() bool {
	return t.plan.Budget > 0 && time.Since(t.began) > t.plan.Budget
}

// slot has one arm do one workload and says what that cost.
func (t *trial) slot(ctx context.Context, r *runner, w Workload, length time.Duration) (record.Sample, error) {
	// What the slot before left as garbage is not this one's to collect.
	runtime.GC()
	do := t.load
	if w.Task != nil {
		do = t.task
	}
	got, err := do(ctx, r, w, length)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return record.Sample{}, fmt.Errorf("measuring %s under the workload %q: %w", r.Name, w.Name, err)
	}
	if r.Extra != nil {
		maps.Copy(got.values, r.Extra(ctx, r.in))
	}
	t.mu.Lock() // of arms that work together
	defer t.mu.Unlock()
	t.slots = append(t.slots, got.slot)
	s := record.Sample{
		Arm: r.Name, Workload: w.Name, Restart: t.group(), Block: t.blocks,
		At: time.Since(t.began).Seconds(), Seconds: got.slot.Seconds, Values: got.values,
	}
	t.emit(sampleEvent(s, got))
	return s, nil
}

// A finding is what one slot brought.
type finding struct {
	slot      gate.Slot
	values    map[string]float64
	load      *load.Result // nil: of a task
	targetCPU float64      // in cores
}

// load puts an arm under load.
func (t *trial) load(ctx context.Context, r *runner, w Workload, length time.Duration) (finding, error) {
	cfg := w.Load
	cfg.URL = r.in.at(w.Name)
	cfg.Warmup, cfg.Duration = t.plan.Warmup, length
	m := gate.Meter{Target: r.target}
	cfg.Window = m.Window
	cfg.Progress = t.progress(r.Name, w.Name)
	got, err := load.Run(ctx, cfg)
	if errors.Is(err, load.ErrNoAnswer) && got.Errors.Sum() == 0 {
		// It was not refused, only too slow for this slot: the block has a gap.
		t.note(fmt.Sprintf("%s on %s: there were slots without any answer", r.Name, w.Name))
		err = nil
	}
	if err = errors.Join(err, m.Err()); err != nil {
		return finding{}, err
	}
	t.keepAnswers(r.Name, w.Name, got.Answers)
	return finding{
		slot:   gate.FromLoad(gate.Slot{Arm: r.Name, Workload: w.Name, Block: t.blocks, Steal: m.Steal(), Others: -1}, cfg, got),
		values: m.Values(got), load: got, targetCPU: m.TargetCPU(),
	}, nil
}

// group is which restart the running block comes after.
func (t *trial) group() int {
	if t.restartsNothing() {
		return 0
	}
	return t.blocks / t.plan.PerRestart
}

// restartsNothing reports whether every arm is somebody else's, so that blocks
// are all there is to learn from.
func (t *trial) restartsNothing() bool {
	return !slices.ContainsFunc(t.runners, func(r *runner) bool { return !r.Fixed })
}

func (t *trial) keepAnswers(arm, workload string, answers []load.Answer) {
	if t.answers[arm] == nil {
		t.answers[arm] = map[string][]load.Answer{}
	}
	kept := t.answers[arm][workload]
	if kept == nil {
		t.answers[arm][workload] = answers
		return
	}
	for i, a := range answers[:min(len(answers), len(kept))] {
		if was := &kept[i]; a.Status != 0 && a.Status == was.Status && (a.Hash != was.Hash || a.Length != was.Length) {
			was.Varies = true
		}
	}
}

// note keeps something that a reader must know, once.
func (t *trial) note(text string) {
	if slices.Contains(t.res.Notes, text) {
		return
	}
	t.res.Notes = append(t.res.Notes, text)
	t.emit(record.Event{Kind: record.EventNote, Text: text})
}

// emit tells whoever watches, with how far the trial is.
func (t *trial) emit(e record.Event) {
	e.Time = time.Now()
	e.Done = float64(t.blocks) / float64(t.lastBlock())
	if t.blocks > 0 {
		e.Left = time.Since(t.began) / time.Duration(t.blocks) * time.Duration(t.lastBlock()-t.blocks)
	}
	t.watch(e)
}

func (t *trial) elapsed() time.Duration { return time.Since(t.began) }
