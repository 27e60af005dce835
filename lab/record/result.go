package record

// This file is what a measurement found. The packages that measure fill a
// [Result], the reports are made from one, and the JSON file of a run is the
// Result itself: a report shows nothing that is not in the file.

import (
	"slices"
	"time"
)

// Format names the layout of a result file. A file of any other is refused:
// figures read by the wrong rules would still look like figures.
const Format = "millrace-lab/1"

// Kind is what sort of measurement made a result.
type Kind string

// The kinds of results.
const (
	KindLoad       Kind = "load"       // one target under load
	KindCompare    Kind = "compare"    // two arms, named on the command line
	KindExperiment Kind = "experiment" // a built-in experiment
	KindPGO        Kind = "pgo"        // proof of a profile's gain
)

// Mode is how much time a measurement was given.
type Mode string

// The modes.
const (
	Quick Mode = "quick" // ends within 90 s
	Full  Mode = "full"  // ends within 15 min
)

// A Result is everything one measurement found. It is complete when Ended is
// set; what an interruption cut short says so in Interrupted and keeps what was
// measured until then.
type Result struct {
	Format  string    `json:"format"`
	Kind    Kind      `json:"kind"`
	Name    string    `json:"name"`  // of the experiment; "load" or "compare" else
	Title   string    `json:"title"` // one line
	Mode    Mode      `json:"mode,omitempty"`
	Version string    `json:"version"` // of the program that measured
	Command []string  `json:"command,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Seed    uint64    `json:"seed"`
	Machine Machine   `json:"machine"`

	// Answer is what was found in one plain sentence with its figure, without a
	// full stop: every report opens with it.
	Answer string `json:"answer,omitempty"`

	// What was asked, claimed and agreed before anything was measured.
	Question string `json:"question,omitempty"`
	Claim    string `json:"claim,omitempty"` // "claimed +39.5 % requests/s on one page"
	Rule     string `json:"rule,omitempty"`  // when which verdict is given, in words

	Metrics   []Metric   `json:"metrics,omitempty"`
	Arms      []Arm      `json:"arms"`
	Workloads []Workload `json:"workloads"`
	Samples   []Sample   `json:"samples,omitempty"`

	Requirements []Requirement `json:"requirements,omitempty"`

	Verdicts []Verdict `json:"verdicts,omitempty"`
	Gates    []Gate    `json:"gates,omitempty"`
	Tables   []Table   `json:"tables,omitempty"`
	Charts   []Chart   `json:"charts,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // what a reader must know: what is missing, which arms were left out and why

	Interrupted string `json:"interrupted,omitempty"` // why it ended early; empty when it did not
}

// Void reports whether a gate failed: then no figure of the result proves
// anything, and every report of it is stamped.
func (r *Result) Void() bool {
	return slices.ContainsFunc(r.Gates, func(g Gate) bool { return g.Status == Failed })
}

// A Requirement is what a load had to be like.
type Requirement struct {
	Text  string `json:"text"`  // "p99 < 200ms"
	Met   bool   `json:"met"`   // a figure that is not there meets nothing
	Found string `json:"found"` // the figure, in words
}

// Machine is where it was measured. What could not be read is empty.
type Machine struct {
	CPU      string   `json:"cpu"`
	Cores    int      `json:"cores"`
	Memory   uint64   `json:"memory"` // bytes
	Kernel   string   `json:"kernel"`
	Go       string   `json:"go"`
	Counters bool     `json:"counters"` // hardware instruction counters are there
	Tools    []string `json:"tools,omitempty"`
}

// A Metric is one figure that samples have.
type Metric struct {
	Key     string `json:"key"`               // in [Sample.Values]
	Name    string `json:"name"`              // "CPU time per request"
	Unit    string `json:"unit"`              // "ns", "bytes", "1/s", "" for counts
	Higher  bool   `json:"higher,omitempty"`  // more is better
	Decides bool   `json:"decides,omitempty"` // it gets a verdict; the others are only shown
	About   string `json:"about,omitempty"`   // what it is not: "not the latency that users see"
}

// An Arm is one of the things compared. The first arm of a result is the
// baseline unless Baseline names another.
type Arm struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`             // one line
	Command []string `json:"command,omitempty"` // how it was started
	Version string   `json:"version,omitempty"`
	Size    int64    `json:"size,omitempty"`    // of the executable, bytes
	Placebo string   `json:"placebo,omitempty"` // the arm it is a second instance of
	Skipped string   `json:"skipped,omitempty"` // why it was not measured, and what to install
}

// A Workload is what all arms were given to do.
type Workload struct {
	Name  string `json:"name"`
	About string `json:"about"` // "GET /, 50 connections, closed loop"
}

// A Sample is one measurement: one arm, one workload, one slot of time.
type Sample struct {
	Arm      string             `json:"arm"`
	Workload string             `json:"workload"`
	Restart  int                `json:"restart"` // groups of blocks between restarts, from 0
	Block    int                `json:"block"`   // from 0; every arm is measured once in each
	Order    int                `json:"order"`   // place within the block, from 0
	At       float64            `json:"at"`      // seconds since [Result.Started], when its window closed
	Seconds  float64            `json:"seconds"` // length of the window
	Values   map[string]float64 `json:"values"`  // by metric; what could not be measured is not there
}

// Outcome is a verdict in one word.
type Outcome string

// The outcomes. Better and worse are about the one metric that the verdict
// names.
const (
	Better    Outcome = "better"
	Worse     Outcome = "worse"
	Equal     Outcome = "equal"     // within Delta
	Undecided Outcome = "undecided" // More and Minutes say what would decide it
)

// A Verdict says how an arm does against the baseline in one metric.
type Verdict struct {
	Workload string  `json:"workload"`
	Metric   string  `json:"metric"`
	Arm      string  `json:"arm"`
	Baseline string  `json:"baseline"`
	Outcome  Outcome `json:"outcome"`
	Ratio    float64 `json:"ratio"` // arm ÷ baseline: the Hodges–Lehmann centre
	Low      float64 `json:"low"`   // of the ratio's interval
	High     float64 `json:"high"`
	Level    float64 `json:"level"` // of the interval: 0.95
	P        float64 `json:"p"`     // of the sign-flip permutation test, Holm-adjusted
	Delta    float64 `json:"delta"` // what counts as equal: 0.01 is 1 %
	Blocks   int     `json:"blocks"`
	Restarts int     `json:"restarts"`
	More     int     `json:"more,omitempty"`    // blocks that would probably decide it
	Minutes  float64 `json:"minutes,omitempty"` // and the time they take
	Why      string  `json:"why,omitempty"`     // undecided although the interval is without 1: what is missing
	Sentence string  `json:"sentence"`          // names the metric: "/: CPU time per request −31.0 % [−33.0 %, −29.0 %] for b against a: better"
}

// GateStatus is whether a sanity gate let the result through.
type GateStatus string

// The statuses of a gate. A gate that could not look says so and does not
// pass silently; a doubtful one says what the figures suffer from without
// making them void.
const (
	Passed   GateStatus = "passed"
	Failed   GateStatus = "failed"
	Doubtful GateStatus = "doubtful"
	Unknown  GateStatus = "unknown"
)

// A Gate is one sanity check of the measurement itself.
type Gate struct {
	Name   string     `json:"name"`
	Status GateStatus `json:"status"`
	Limit  string     `json:"limit"` // what was allowed
	Detail string     `json:"detail"`
}

// A Table is figures for people. Cells are finished text; numbers are aligned
// right by the reports.
type Table struct {
	Title   string     `json:"title"`
	About   string     `json:"about,omitempty"`
	Lead    bool       `json:"lead,omitempty"` // it stands right below the answer
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// A Chart is series over one axis.
type Chart struct {
	Title  string   `json:"title"`
	About  string   `json:"about,omitempty"`
	Lead   bool     `json:"lead,omitempty"` // it stands right below the answer
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Series []Series `json:"series"`
}

// An Axis is one of a chart's two.
type Axis struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"` // as in [Metric]: figures are given in it and shown with a prefix (k, M, µ)
	Log  bool   `json:"log,omitempty"`
}

// A Series is one line of a chart.
type Series struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"` // x rising
}

// An Event is what happens while it is measured, for whoever watches. Zero
// fields are unknown.
type Event struct {
	Time     time.Time     `json:"time"`
	Kind     EventKind     `json:"event"`
	Text     string        `json:"text,omitempty"` // for people, without a full stop
	Arm      string        `json:"arm,omitempty"`
	Workload string        `json:"workload,omitempty"`
	Done     float64       `json:"done"`              // share of the whole, 0…1
	Left     time.Duration `json:"left_ns,omitempty"` // until the end, estimated
	Rate     float64       `json:"rate,omitempty"`    // requests/s
	P50      time.Duration `json:"p50_ns,omitempty"`
	P90      time.Duration `json:"p90_ns,omitempty"`
	P99      time.Duration `json:"p99_ns,omitempty"`
	Requests uint64        `json:"requests,omitempty"` // so far, in this slot
	Errors   uint64        `json:"errors,omitempty"`
	// Shares of one core: 1.5 is one and a half.
	TargetCPU    float64 `json:"target_cpu,omitempty"`
	GeneratorCPU float64 `json:"generator_cpu,omitempty"`
	// Interim figure of a comparison, for the view.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// EventKind is what sort of news an event is.
type EventKind string

// The kinds of events.
const (
	EventStep   EventKind = "step"   // something that takes time begins: "building lab/bench/subjects"
	EventTick   EventKind = "tick"   // figures of the last quarter of a second or so
	EventSample EventKind = "sample" // a slot is over: its figures
	EventLook   EventKind = "look"   // the samples so far were judged
	EventNote   EventKind = "note"   // something a reader must know; ends up in Result.Notes
	EventEnd    EventKind = "end"    // it is over; Text says how, Verdicts are final
)

// Watch receives events, one at a time. It must not block for long: it is
// called between slots and from a ticker, never from the hot path.
type Watch func(Event)
