// Package packed is the experiment packed: a site in one executable beside the same
// site from disk and beside nginx. What is asked for is a page, the site, a large
// file, the time from the start to the first byte, and memory.
package packed

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The arms.
const (
	packed = "millrace-packed"
	disk   = "millrace-disk"
	nginx  = "nginx"
)

// perMB is the metric of the large file.
const perMB = "cpu_ns_per_mb"

const (
	// rounds are how many times each arm is started anew and given each row.
	rounds = 9
	// pages are the files of the site beside the usual seven and the large one.
	pages = 2000
	// checking is how long a packed site is left alone after its start: it compares
	// its contents with their sums in the background, which no request should pay for.
	checking = time.Second
	// mostMemory is 1.2 of the lane's budget of 64 MiB, and 25 MB.
	mostMemory = 1.2*(64<<20) + 25e6
	// latestByte is when the first byte must be there after the start.
	latestByte = 50 * time.Millisecond
)

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "packed",
		Title: "a site in one executable beside the same site from disk and nginx",
		Question: "What does a site that millrace pack has put into one executable spend on a page and on a large file, when does it answer " +
			"after its start, and how much memory does it hold?",
		Claim: fmt.Sprintf("A packed site spends no more CPU time on a request than the same site from disk, at most 1.1 of nginx's on a large file, "+
			"sends its first byte within %v of its start with %d files, and holds at most 1.2 of the lane's budget and 25 MB.", latestByte, pages),
		Rule: fmt.Sprintf("In each of %d rounds every server is started anew and does every row once, in random order within a row. A ratio is taken "+
			"within each round; what is shown is the median of the rounds with the least and the greatest. There are no further verdicts. "+
			"The result is void when a server gives a wrong body or fails to answer.", rounds),
		Selects: true,
		Run:     run,
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	large    int64                        // bytes of the large file
	launches map[string]experiment.Launch // of both ways of millrace, by arm
}

func run(ctx context.Context, env experiment.Env, res *record.Result) error {
	quick := env.Mode != record.Full
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env, Site: filepath.Join(env.Work, "site"), Probed: experiment.SitePaths()},
		large:   experiment.LargeSize(true), // many downloads in a slot
	}
	chosen, err := experiment.ChooseRows(m.rows(), env.Only, quick, m.Note)
	if err != nil {
		return err
	}
	if err := m.prepare(ctx); err != nil {
		return err
	}
	schedule := experiment.Schedule{Rounds: rounds, QuickRounds: 3, Slot: time.Second, QuickSlot: 400 * time.Millisecond, Warmup: 100 * time.Millisecond}
	err = trial.Run(ctx, schedule.Plan(m.arms(ctx), chosen, metrics(), env), res, m.Part(0, 1, 0))
	peers := []experiment.Peer{{Arm: disk, Name: "Millrace from disk"}, {Arm: nginx, Name: "nginx"}}
	res.Tables, res.Answer = append(res.Tables, experiment.Tables(res, chosen, peers)...), answer(res, chosen)
	return err
}

// prepare writes the site and packs it.
func (m *measurement) prepare(ctx context.Context) error {
	m.Emit(record.Event{Kind: record.EventStep, Text: fmt.Sprintf("packing a site of %d files", pages)})
	if err := experiment.WriteSite(m.Site, append(experiment.Site(), pageFiles()...)); err != nil {
		return err
	}
	if err := experiment.WriteLarge(m.Site, m.large); err != nil {
		return err
	}
	m.launches = map[string]experiment.Launch{
		disk:   m.Millrace(false),
		packed: m.Packed(ctx, filepath.Join(m.Env.Work, "packed-site")),
	}
	return ctx.Err()
}

// pageFiles are pages of 0.6 to 4.6 KB, of which no two are equal: equal ones are
// packed once.
func pageFiles() []experiment.File {
	files := make([]experiment.File, pages)
	for i := range files {
		name := fmt.Sprintf("pages/%d.html", i)
		files[i] = experiment.File{Name: name, Path: "/" + name, Size: 600 + 2*i}
	}
	return files
}

// arms are all of them. The packed site is started first, so that it has checked
// itself when the others are there.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	site := m.Arm(packed, "the site packed into millrace's executable by millrace pack; the first second after its start, in which it checks its contents, is not measured", m.launches[packed])
	if start := site.Start; start != nil {
		site.Start = func(ctx context.Context) (*trial.Instance, error) {
			in, err := start(ctx)
			if err != nil {
				return nil, err
			}
			if err := experiment.Sleep(ctx, checking); err != nil {
				_ = in.Stop() // the run ends
				return nil, err
			}
			return in, nil
		}
	}
	return []trial.Arm{
		site,
		m.Arm(disk, "millrace serve on a folder", m.launches[disk]),
		m.Arm(nginx, "sendfile, open_file_cache, two workers, no log", m.Nginx(ctx, "")),
	}
}

func metrics() []record.Metric {
	return []record.Metric{
		{Key: experiment.CPU, Name: "CPU time per request", Unit: "ns", About: "of the server's processes, user and kernel"},
		{Key: perMB, Name: "CPU time per megabyte", Unit: "ns", About: "of the server's processes, for each megabyte that was received"},
		{Key: firstByte, Name: "time to the first byte", Unit: "ns", About: "from the start of the process to the first byte of the page; the program is in the page cache"},
		{Key: memory, Name: "resident memory", Unit: "bytes", About: "at the end of the slot, or after all files were asked for, as the workload says"},
	}
}

// rows are all of them, in the order of the table.
func (m *measurement) rows() []experiment.Row {
	all := []experiment.Row{
		{
			Name: "page", About: "GET / (501 bytes), 50 connections, closed loop", Goal: 1, Headline: true,
			Load: load.Config{Paths: []string{"/"}, Connections: 50, Threads: 1},
		},
		{
			Name: "site", About: "GET of seven paths in turn (0.5 to 15 KB), 50 connections, closed loop", Goal: 1,
			Load: load.Config{Paths: experiment.SitePaths(), Connections: 50, Threads: 1},
		},
		{
			Name: "large", About: fmt.Sprintf("a file of %d MiB, 4 connections, closed loop", m.large>>20), Goal: 1.1, Headline: true,
			Load: load.Config{Paths: []string{experiment.LargePath}, Connections: 4, Threads: 1},
		},
		{
			Name: "first-byte", About: fmt.Sprintf("from the start of the process to the first byte of the page, with %d files: the median of %d starts", pages, starts),
			Figure: "first byte", Metric: firstByte, Most: float64(latestByte), Task: m.startOften,
		},
		{
			Name: "memory", About: fmt.Sprintf("resident memory of a server that was asked for each of %d files in %d encodings", pages, len(encodings())),
			Figure: "memory", Metric: memory, Most: mostMemory, Task: m.askForAll,
		},
	}
	for i := range all {
		r := &all[i]
		r.Ours, r.Arms, r.Quick, r.Connections = packed, []string{disk, packed}, true, r.Load.Connections
		if r.Task == nil {
			r.Figure, r.Metric, r.Arms = "CPU per request", experiment.CPU, []string{disk, packed, nginx}
		}
		if r.Name == "large" {
			r.Figure, r.Metric, r.Arms = "CPU per MB", perMB, []string{nginx, packed, disk}
		}
	}
	return all
}

// answer is about the rows that have a peer, and what the others found.
func answer(res *record.Result, chosen []experiment.Row) string {
	text := experiment.Answer(res, chosen)
	if at := experiment.MedianOf(res, packed, "first-byte", firstByte); at > 0 {
		text += fmt.Sprintf("; the first byte comes %s after the start of the packed site", experiment.Duration(at))
	}
	if held := experiment.MedianOf(res, packed, "memory", memory); held > 0 {
		text += fmt.Sprintf("; it holds %s when all files were asked for", experiment.Bytes(held))
	}
	return text
}
