package report

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/lab/record"
)

// -update writes testdata anew: the fixtures from the functions below, and the
// golden files from what the reports are now.
var update = flag.Bool("update", false, "write testdata anew")

// fixtures are results as the lab makes them, by the name of their file.
func fixtures() map[string]*record.Result {
	return map[string]*record.Result{
		"compare":     compareResult(),
		"experiment":  experimentResult(),
		"load":        loadResult(),
		"void":        voidResult(),
		"interrupted": interruptedResult(),
	}
}

// fixture reads one of them, as a user's file would be.
func fixture(t testing.TB, name string) *record.Result {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	if *update {
		var b bytes.Buffer
		if err := Write(&b, fixtures()[name]); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	res, err := Read(f)
	if err != nil {
		t.Fatal(name, err)
	}
	return res
}

func baseResult(kind record.Kind, name, title string) *record.Result {
	started := time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	return &record.Result{
		Format: record.Format, Kind: kind, Name: name, Title: title, Version: "0.3.0 a02bff6",
		Started: started, Ended: started.Add(83 * time.Second), Seed: 1795303417,
		Machine: record.Machine{
			CPU: "Example CPU @ 2.40GHz", Cores: 2, Memory: 8_200_000_000, Kernel: "Linux 6.12.30", Go: "go1.26.8",
			Tools: []string{"nginx 1.22.1", "wrk 4.1.0"},
		},
		Metrics: []record.Metric{
			{Key: "cpu_ns", Name: "CPU time per request", Unit: "ns", Decides: true, About: "of the server's processes, user and kernel; not the latency that users see"},
			{Key: "requests_per_second", Name: "requests per second", Unit: "1/s", Higher: true, Decides: true, About: "with generator and server on the same cores"},
			{Key: "latency_p99_ns", Name: "99th percentile of latency", Unit: "ns"},
			{Key: "rss_bytes", Name: "resident memory", Unit: "bytes", About: "at the end of the slot"},
		},
		Gates: []record.Gate{
			{Name: "answers", Status: record.Passed, Limit: "at most 0.1 % of answers other than 2xx", Detail: "0 of 1,204,331"},
			{Name: "same answers", Status: record.Passed, Limit: "status, body, encoding and headers equal between arms, but for those that are the server's own affair", Detail: "7 paths"},
			{Name: "Little's law", Status: record.Passed, Limit: "rate × mean latency within 5 % of the requests in flight", Detail: "49.8 of 50"},
			{Name: "generator bound", Status: record.Passed, Limit: "generator below 90 % of its threads' time", Detail: "61 % in the busiest slot"},
			{Name: "steal", Status: record.Passed, Limit: "below 2 % of CPU time in the median slot", Detail: "0.2 %, 1.5 % in the worst"},
			{Name: "placebo without effect", Status: record.Passed, Limit: "a second instance of an arm neither better nor worse than the first", Detail: "undecided"},
			{Name: "instructions", Status: record.Unknown, Limit: "", Detail: "no hardware counters (perf_event_open: no such file or directory)"},
		},
	}
}

// addSamples measures arms that cost some share of a baseline's 25 µs.
func addSamples(res *record.Result, costs map[string]float64, blocks int) {
	random := rand.New(rand.NewPCG(7, 11))
	for block := range blocks {
		for _, w := range res.Workloads {
			machine := 1 + 0.05*random.NormFloat64()
			for order, a := range res.Arms {
				cost, ok := costs[a.Name]
				if !ok {
					continue
				}
				cpu := math.Round(25_000 * cost * machine * (1 + 0.01*random.NormFloat64()))
				res.Samples = append(res.Samples, record.Sample{
					Arm: a.Name, Workload: w.Name, Restart: block / 2, Block: block, Order: order, At: float64(block) + 0.5, Seconds: 0.5,
					Values: map[string]float64{
						"cpu_ns": cpu, "requests_per_second": math.Round(1e9 / cpu * 1.2),
						"latency_p99_ns": math.Round(cpu * 90), "rss_bytes": math.Round(9e6*cost) + float64(block)*4096,
					},
				})
			}
		}
	}
}

// judge gives the verdicts that such costs lead to.
func judge(res *record.Result, baseline string, costs map[string]float64, blocks int) {
	for _, w := range res.Workloads {
		for _, a := range res.Arms {
			cost, ok := costs[a.Name]
			if !ok || a.Name == baseline {
				continue
			}
			for _, m := range res.Metrics[:2] {
				ratio := cost / costs[baseline]
				if m.Higher {
					ratio = 1 / ratio
				}
				v := record.Verdict{
					Workload: w.Name, Metric: m.Key, Arm: a.Name, Baseline: baseline, Ratio: ratio, Low: ratio * 0.981, High: ratio * 1.02,
					Level: 0.95, P: 0.0004, Delta: 0.01, Blocks: blocks, Restarts: blocks / 2,
				}
				switch {
				case a.Placebo != "":
					v.Outcome, v.Low, v.High, v.P = record.Equal, ratio*0.994, ratio*1.006, 0.71
				case math.Abs(ratio-1) < 0.03:
					v.Outcome, v.More, v.Minutes, v.P = record.Undecided, 24, 2.6, 0.19
				case ratio > 1 == m.Higher:
					v.Outcome = record.Better
				default:
					v.Outcome = record.Worse
				}
				v.Sentence = fmt.Sprintf("%s: %s of %s is %.1f %% %s that of %s", w.Name, m.Name, a.Name, math.Abs(ratio-1)*100, map[bool]string{true: "above", false: "below"}[ratio > 1], baseline)
				res.Verdicts = append(res.Verdicts, v)
			}
		}
	}
}

func compareResult() *record.Result {
	res := baseResult(record.KindCompare, "compare", "millrace compared with nginx")
	res.Command = []string{"millrace", "lab", "compare", "nginx=http://127.0.0.1:8081/", "millrace=bin/millrace serve 'my site'", "--quick"}
	res.Mode = record.Quick
	res.Claim = "−30 % CPU time per request on one page"
	res.Rule = "A verdict needs p < 0.01 after Holm's adjustment over both metrics and an interval that reaches beyond ±1 %."
	res.Arms = []record.Arm{
		{Name: "nginx", About: "as its package configures it, log off", Version: "nginx/1.22.1", Command: []string{"/usr/sbin/nginx", "-c", "lab/bench/peers/nginx.conf"}, Size: 1_240_000},
		{Name: "millrace", About: "from disk", Version: "0.3.0", Command: []string{"bin/millrace", "serve", "my site"}, Size: 20_735_644},
		{Name: "nginx′", About: "nginx once more", Placebo: "nginx"},
	}
	res.Workloads = []record.Workload{{Name: "/", About: "GET /, 501 bytes, 50 connections, closed loop"}}
	costs := map[string]float64{"nginx": 1, "millrace": 0.69, "nginx′": 1}
	addSamples(res, costs, 6)
	judge(res, "nginx", costs, 6)
	res.Notes = []string{"instructions: no hardware counters (perf_event_open: no such file or directory)"}
	return res
}

func experimentResult() *record.Result {
	res := baseResult(record.KindExperiment, "embed-vs-disk", "small files from the executable or from disk, in seven servers")
	res.Mode = record.Full
	res.Ended = res.Started.Add(14*time.Minute + 12*time.Second)
	res.Question = "Is a small site served faster from files inside the executable than from a folder, and is it the place of the bytes that makes the difference or the way of serving them?"
	res.Claim = "A net/http server with go:embed answers 116,485 requests/s where one that reads from disk answers 83,519 (+39.5 %) on the front page alone, and 91,614 against 83,970 (+9.1 %) on all seven paths, with 1000 connections and two threads of load, each figure measured once."
	res.Rule = "An arm differs when the sign-flip permutation test over restarts gives p < 0.01 after Holm's adjustment over both figures and workloads and the interval reaches beyond ±1 %; it is equal when the whole interval lies within ±1 %; else it is undecided."
	res.Workloads = []record.Workload{
		{Name: "one page", About: "GET /, 1000 connections, 2 threads"},
		{Name: "all", About: "seven files and /stopdiiacity/verify.json in turn, 1000 connections, 2 threads"},
	}
	costs := map[string]float64{}
	for _, a := range []struct {
		name, about string
		cost        float64
	}{
		{"nethttp-disk", "net/http, http.FileServer over a folder", 3.9},
		{"nethttp-embed", "net/http, go:embed through fs.Sub and http.FS", 3.66},
		{"ldflags", "files in -ldflags -X variables, binary ones base64-decoded per request", 2.9},
		{"gin-disk", "Gin StaticFS over a folder", 4.1},
		{"gin-embed", "Gin StaticFS, embedded", 3.84},
		{"fasthttp-disk", "fasthttp.FS over a folder", 0.98},
		{"fasthttp-embed", "fasthttp, embedded", 0.99},
		{"millrace-disk", "millrace serve FOLDER", 0.66},
		{"millrace-embed", "millrace as a library over go:embed", 0.655},
		{"millrace-packed", "the packed executable", 0.65},
		{"nginx", "nginx with sendfile and no log", 1},
	} {
		res.Arms = append(res.Arms, record.Arm{Name: a.name, About: a.about, Version: "go1.26.8", Size: int64(7e6 + 1e6*a.cost), Command: []string{"lab/bench/out/" + a.name, "-listen", "127.0.0.1:PORT"}})
		costs[a.name] = a.cost
	}
	res.Arms = append(res.Arms, record.Arm{Name: "nethttp-disk′", About: "nethttp-disk once more", Placebo: "nethttp-disk"})
	res.Arms = append(res.Arms, record.Arm{Name: "caddy", About: "Caddy's file_server", Skipped: "caddy is missing: install caddy"})
	costs["nethttp-disk′"] = 3.9
	addSamples(res, costs, 18)
	judge(res, "nethttp-disk", costs, 18)
	published := record.Table{
		Title: "Published and measured", About: "Medians over all blocks; the ratios in brackets are to nethttp-disk in the same column.",
		Columns: []string{"workload", "arm", "published, requests/s", "measured, requests/s", "CPU per request, µs"},
		Rows: [][]string{
			{"one page", "nethttp-disk", "83519", "12308", "97.5"},
			{"one page", "nethttp-embed", "116485 (+39.5 %)", "13114 (+6.5 %)", "91.5 (−6.2 %)"},
			{"all", "nethttp-disk", "83970", "12290", "97.6"},
			{"all", "nethttp-embed", "91614 (+9.1 %)", "13101 (+6.6 %)", "91.6 (−6.1 %)"},
		},
	}
	size := record.Table{Title: "Size of the executable", About: "As built, with symbols.", Columns: []string{"arm", "bytes", "against nethttp-disk"}}
	for _, a := range res.Arms[:5] {
		size.Rows = append(size.Rows, []string{a.Name, fmt.Sprint(a.Size), "+0.1 %"})
	}
	res.Tables = []record.Table{published, size}
	curve := record.Chart{
		Title: "CPU time per request by size of the file", About: "Medians; 50 connections. Where lines cross, the cheaper way changes.",
		X: record.Axis{Name: "size of the file", Unit: "bytes", Log: true}, Y: record.Axis{Name: "CPU time per request", Unit: "ns", Log: true},
	}
	for _, arm := range []string{"nethttp-disk", "nethttp-embed", "millrace-disk", "nginx"} {
		s := record.Series{Name: arm}
		for bytes := 512.0; bytes <= 1<<20; bytes *= 2 {
			s.Points = append(s.Points, [2]float64{bytes, math.Round(25_000*costs[arm] + bytes*(0.1+0.05*costs[arm]))})
		}
		curve.Series = append(curve.Series, s)
	}
	res.Charts = []record.Chart{curve}
	res.Notes = []string{
		"caddy was left out: caddy is missing: install caddy",
		"The embedded arms send no Last-Modified: browsers ask again in full where those from disk answer 304.",
	}
	return res
}

func loadResult() *record.Result {
	res := baseResult(record.KindLoad, "load", "load of http://127.0.0.1:8080/")
	res.Command = []string{"millrace", "lab", "load", "http://127.0.0.1:8080/", "--connections", "50", "--duration", "30s"}
	res.Arms = []record.Arm{{Name: "target", About: "http://127.0.0.1:8080/"}}
	res.Workloads = []record.Workload{{Name: "load", About: "GET /, 50 connections, closed loop, 30 s"}}
	for i := range res.Metrics {
		res.Metrics[i].Decides = false
	}
	res.Gates = res.Gates[:3]
	res.Samples = []record.Sample{{Arm: "target", Workload: "load", Seconds: 30, At: 30, Values: map[string]float64{
		"cpu_ns": 16_240, "requests_per_second": 83_519, "latency_p99_ns": 2_310_000, "rss_bytes": 14_680_064,
	}}}
	res.Tables = []record.Table{
		{Title: "Latency", About: "From the write of a request to the end of its answer.", Columns: []string{"", "latency", "opening a connection"}, Rows: [][]string{
			{"min", "31µs", "80µs"}, {"mean", "597µs", "310µs"}, {"50 %", "540µs", "290µs"}, {"99 %", "2.31ms", "1.2ms"}, {"max", "208ms", "1.9ms"},
		}},
		{Title: "Requests", Columns: []string{"", "count"}, Rows: [][]string{{"answered", "2505570"}, {"200 OK", "2505570"}}},
	}
	random := rand.New(rand.NewPCG(3, 5))
	seconds := record.Axis{Name: "time", Unit: "s"}
	series := func(name string, of func(at float64) float64) record.Series {
		s := record.Series{Name: name}
		for i := range 240 {
			at := float64(i) / 8
			v := of(at) * (1 + 0.03*random.NormFloat64())
			s.Points = append(s.Points, [2]float64{at, math.Round(v*1000) / 1000})
		}
		return s
	}
	stall := func(at, v, stalled float64) float64 {
		if at > 17 && at < 17.6 {
			return stalled
		}
		return v
	}
	res.Charts = []record.Chart{
		{Title: "Requests per second", X: seconds, Y: record.Axis{Name: "rate", Unit: "1/s"}, Series: []record.Series{series("answered", func(at float64) float64 { return stall(at, 83_500, 21_000) })}},
		{Title: "Latency over time", X: seconds, Y: record.Axis{Name: "latency", Unit: "ns", Log: true}, Series: []record.Series{
			series("50 %", func(at float64) float64 { return stall(at, 540e3, 900e3) }),
			series("90 %", func(at float64) float64 { return stall(at, 1.1e6, 30e6) }),
			series("99 %", func(at float64) float64 { return stall(at, 2.3e6, 200e6) }),
		}},
		{Title: "CPU of the target", X: seconds, Y: record.Axis{Name: "cores"}, Series: []record.Series{series("CPU", func(at float64) float64 { return stall(at, 1.36, 0.3) })}},
		{Title: "Memory of the target", X: seconds, Y: record.Axis{Name: "memory", Unit: "bytes"}, Series: []record.Series{
			series("RSS", func(at float64) float64 { return 11e6 + 1e5*at }), series("PSS", func(at float64) float64 { return 10e6 + 1e5*at }),
		}},
	}
	return res
}

func voidResult() *record.Result {
	res := compareResult()
	res.Title = "a server compared with one that answers something else"
	res.Gates[1] = record.Gate{Name: "same answers", Status: record.Failed, Limit: res.Gates[1].Limit, Detail: "/ has 501 bytes from nginx and 0 bytes from millrace"}
	res.Gates[3] = record.Gate{Name: "generator bound", Status: record.Failed, Limit: res.Gates[3].Limit, Detail: "97 % in the busiest slot"}
	return res
}

func interruptedResult() *record.Result {
	res := compareResult()
	res.Interrupted = "Ctrl-C after 41 s, in block 3 of 6"
	res.Samples = res.Samples[:8]
	for i := range res.Verdicts {
		v := &res.Verdicts[i]
		v.Outcome, v.Low, v.High, v.P, v.More, v.Minutes, v.Blocks, v.Restarts = record.Undecided, 0, 0, 1, 9, 0.7, 2, 1
	}
	return res
}
