package experiment

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/site"
	"millrace/lab/trial"
)

//go:embed specs/*.yaml
var specs embed.FS

// A Spec is an experiment as data: a file of specs/. What of it needs code, it names:
// a task, or a table.
//
// Three kinds of names in braces stand for something else. Those under "values" stand
// for one text in a quick run and for another in a full one, anywhere in the file.
// Those under a workload's "each" make one workload of each line there. In commands,
// configs and URLs stand what a place has ([Run]'s Fields): {site}, {dir}, {address},
// {second}, {socket}, {memory}, {config}, {cert}, {key}, and the address of each upstream.
type Spec struct {
	Values map[string][2]string // [quick, full]

	Name     string // as typed: embed-vs-disk
	Title    string // one line, for the list
	Question string
	Claim    string // what was published
	Rule     string // when which verdict is given

	Selects bool // workloads may be named on the command line

	Site        []string  // what is in {site}: see [siteFiles]
	Probe       []string  // paths that a server that has just started is asked for
	Certificate bool      // {cert} and {key} are made
	Pack        bool      // the site is packed into millrace, as the program "packed"
	Programs    []Program // of lab/bench/subjects, built before anything starts
	Upstreams   []Arm     // servers that the arms are in front of
	Arms        []Arm     // the first that can run is the baseline
	Workloads   workloads
	Metrics     []record.Metric // beyond those of every trial
	Connections int             // at once: as many descriptors are needed

	// As in [millrace/lab/trial.Plan].
	Decide         []string
	Also           [][2]string
	Delta          float64
	Placebo        string
	Pooled, Differ string
	Slot, Warmup   time.Duration
	Blocks         []int // empty: as many as can give a verdict at all
	PerRestart     int
	Unlimited      bool          // it takes the time that it takes
	Minutes        int           // that a full run takes; 0: as the budget says
	Reserve        time.Duration // kept of the budget for what comes after the trial

	Ours      string                        // millrace's arm, where a workload names none
	Peers     []Peer                        // columns of tables of ratios
	Published map[string]map[string]float64 // by workload and arm
	Tables    []Table
	Answer    []Sentence
}

// A Program is one executable of lab/bench/subjects.
type Program struct {
	Key, Folder string   // as commands name it; empty: as the folder
	Flags       []string // of go build
	Env         []string // added to the go command's: GOARCH=386
	Full        bool     // in a full run only
}

// An Arm is one server to compare, or one that stands behind them.
type Arm struct {
	Name, About string
	Run         string            // its command; the first word is millrace, packed, nginx, a program, or a tool
	Package     string            // of Debian, which has the tool
	Version     []string          // arguments that make the tool say its version, and what stands before that
	Module      string            // of a program: whose version is told
	Config      string            // a template of lab/bench/peers: nginx/tls.conf.tmpl
	Text        string            // a config itself, where there is no template
	Fields      map[string]string // of the template, beside those of the place
	URL         map[string]string // by workload; none: http://{address}/
	With        string            // a tool that it needs beside, which Package has
	Once        bool              // a command that is started for each thing to do, and no server
	Env         []string          // added to its environment
	In          string            // the folder of lab/bench that it runs in
	Socket      bool              // it listens on {socket}, too, and opens that last
	Memory      bool              // {memory} is a folder in memory
	Full        bool              // in a full run only
	Needs       string            // of an upstream: only for workloads that need the same
}

// A Workload is what arms are given to do: a load, or a task that is code.
type Workload struct {
	Name, About string
	Quick       bool     // in quick runs, too
	Arms        []string // those that do it; none: all. The first is what millrace is held against.
	Needs       string   // a tool or a thing that may be missing: h2load

	Figure, Metric string // what counts, and what it is called: "CPU per page"; empty: CPU per request
	Ours           string
	Goal, Most     float64 // the ratio that must not be passed, and the figure itself; 0: there is none
	Headline       bool    // in the answer

	Decide   []string
	Differ   string // why answers need not be equal
	Errors   float64
	Slot     time.Duration
	Blocks   int
	Together bool

	Paths         []string // "site": those of the small site; "page": the page with its assets
	Again         int      // so many of the paths, from the first on, are asked for once more, with the tag that they came with: 304
	Miss          []string // paths that are asked for after these, each time with another query, so that no cache has the answer
	Header        map[string]string
	Browser       bool // the header fields of a browser
	Body, Message int  // bytes
	Unique        bool
	Protocol      load.Protocol
	Connections   int
	Streams       int
	Threads       int
	Sources       int
	Requests      uint64
	Rate          float64 // requests a second, at random moments; 0: each as soon as the last is answered
	Timeout       time.Duration

	Task string // the name of what is done instead of a load
	// For tasks.
	Count   int
	Idle    time.Duration
	Every   time.Duration
	Over    string // a place
	Resumed bool
}

// CPU is the metric that every trial has: of the server's processes, for each
// request, or what stands for one.
const CPU = "cpu_ns"

// Read is the experiment of a name, as it is in a mode.
func Read(name string, mode record.Mode) (*Spec, error) {
	text, err := specs.ReadFile(path.Join("specs", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("there is no experiment %q: %w", name, err)
	}
	s, err := parseSpec(string(text), mode)
	if err != nil {
		return nil, fmt.Errorf("reading the experiment %s: %w", name, err)
	}
	return s, nil
}

func parseSpec(text string, mode record.Mode) (*Spec, error) {
	var first struct{ Values map[string][2]string }
	if err := yaml.Unmarshal([]byte(text), &first); err != nil {
		return nil, err
	}
	for name, pair := range first.Values {
		value := pair[0]
		if mode == record.Full {
			value = pair[1]
		}
		text = fill(text, name, value)
	}
	s := new(Spec)
	if err := yaml.UnmarshalWithOptions([]byte(text), s, yaml.Strict()); err != nil {
		return nil, err
	}
	quick := mode != record.Full
	absent := func(a Arm) bool { return quick && a.Full }
	s.Arms, s.Upstreams = slices.DeleteFunc(s.Arms, absent), slices.DeleteFunc(s.Upstreams, absent)
	s.Programs = slices.DeleteFunc(s.Programs, func(p Program) bool { return quick && p.Full })
	for i := range s.Programs {
		s.Programs[i].Key = cmp.Or(s.Programs[i].Key, s.Programs[i].Folder)
	}
	for i := range s.Workloads {
		s.Workloads[i].complete(s)
	}
	return s, nil
}

// fill replaces a name in braces; one in quotes alone becomes a value without them.
func fill(text, name, value string) string {
	return strings.NewReplacer(`"{`+name+`}"`, value, `'{`+name+`}'`, value, "{"+name+"}", value).Replace(text)
}

// complete fills in what a workload does not say.
func (w *Workload) complete(s *Spec) {
	known := func(name string) bool {
		return slices.ContainsFunc(s.Arms, func(a Arm) bool { return a.Name == name })
	}
	w.Arms = slices.DeleteFunc(w.Arms, func(name string) bool { return !known(name) }) // those of a full run
	w.Ours = cmp.Or(w.Ours, s.Ours)
	w.Metric, w.Figure = cmp.Or(w.Metric, CPU), cmp.Or(w.Figure, "CPU per request")
	w.Threads = cmp.Or(w.Threads, 1)
}

// workloads are those of a spec.
type workloads []Workload

// UnmarshalYAML makes of a workload with "each" one for each of its lines, and of one
// with "and", too, one for each pair.
func (w *workloads) UnmarshalYAML(text []byte) error {
	var all []map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		return err
	}
	for _, one := range all {
		lists := []any{one["each"], one["and"]}
		delete(one, "each")
		delete(one, "and")
		plain, err := yaml.Marshal(one)
		if err != nil {
			return err
		}
		texts := []string{string(plain)}
		for _, list := range lists {
			if texts, err = spread(texts, list); err != nil {
				return fmt.Errorf("%v: %w", one["name"], err)
			}
		}
		for _, text := range texts {
			var done Workload
			if err := yaml.UnmarshalWithOptions([]byte(text), &done, yaml.Strict()); err != nil {
				return fmt.Errorf("%v: %w", one["name"], err)
			}
			*w = append(*w, done)
		}
	}
	return nil
}

// spread fills each line of a list into each text.
func spread(texts []string, list any) ([]string, error) {
	if list == nil {
		return texts, nil
	}
	lines, ok := list.([]any)
	if !ok {
		return nil, fmt.Errorf("%v is no list of values", list)
	}
	var out []string
	for _, text := range texts {
		for _, line := range lines {
			values, ok := line.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%v gives no names values", line)
			}
			filled := text
			for _, name := range slices.Sorted(maps.Keys(values)) {
				filled = fill(filled, name, fmt.Sprint(values[name]))
			}
			out = append(out, filled)
		}
	}
	return out, nil
}

// load is a workload's load.
func (w Workload) load() load.Config {
	c := load.Config{
		Header: w.header(), Unique: w.Unique, Alike: true, Protocol: w.Protocol, Connections: w.Connections, Streams: w.Streams, Threads: w.Threads,
		Sources: w.Sources, Requests: w.Requests, Timeout: w.Timeout, Insecure: true, // certificates are made for the run
	}
	if runtime.NumCPU() <= w.Threads {
		c.Threads = 1 // several would take the server's last core
	}
	if c.Paths, c.Steps = w.paths(), w.steps(); w.Rate > 0 {
		c.Arrival, c.Rate = load.Poisson, w.Rate
	}
	if w.Body > 0 {
		body := strings.Repeat("x", w.Body)
		c.Request.Body = &body
	}
	if w.Message > 0 {
		c.Message = []byte(strings.Repeat("x", w.Message))
	}
	return c
}

func (w Workload) paths() []string { return pathsOf(w.Paths) }

// steps are the requests of a workload in which some come again or miss; nil for any other.
func (w Workload) steps() (steps []load.Step) {
	if w.Again == 0 && len(w.Miss) == 0 {
		return nil
	}
	paths := w.paths()
	tag := func(i int) string { return fmt.Sprint("tag-", i) }
	for i, p := range paths {
		s := load.Step{Path: p, Expect: []string{"status 200"}}
		if i < w.Again {
			s.Take = map[string]string{tag(i): "header Etag"}
		}
		steps = append(steps, s)
	}
	for i, p := range paths[:min(w.Again, len(paths))] {
		steps = append(steps, load.Step{Name: "GET " + p + " again", Path: p, Header: map[string]string{"If-None-Match": "{{" + tag(i) + "}}"}, Expect: []string{"status 304"}})
	}
	for _, p := range w.Miss {
		steps = append(steps, load.Step{Path: p + "?n={{number}}", Expect: []string{"status 200"}})
	}
	return steps
}

// pathsOf are paths, among which "site" stands for those of the small site, and "page" for
// the page and its assets.
func pathsOf(list []string) (paths []string) {
	for _, p := range list {
		switch p {
		case "site":
			paths = append(paths, site.SmallPaths()...)
		case "page":
			paths = append(paths, PagePaths()...)
		default:
			paths = append(paths, p)
		}
	}
	return paths
}

func (w Workload) header() http.Header {
	h := http.Header{}
	if w.Browser {
		h = Chromium()
	}
	for name, value := range w.Header {
		h.Set(name, value)
	}
	if len(h) == 0 {
		return nil
	}
	return h
}

// figures is how many figures of a workload get a verdict.
func (w Workload) figures(s *Spec) int {
	if slices.Contains(w.Decide, trial.NoVerdict) {
		return 0
	}
	if len(w.Decide) > 0 {
		return len(w.Decide)
	}
	return len(s.Decide)
}
