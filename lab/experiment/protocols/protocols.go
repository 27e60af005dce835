// Package protocols is the experiment protocols: one server, asked for the same
// over HTTP/1.1, HTTP/2 and HTTP/3, all with TLS 1.3. What is asked for is a small
// page, a page with its assets and a large file; on the machine itself, and over a
// link that takes its time and loses packets.
package protocols

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/link"
	"millrace/lab/load/client"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The arms: the same server, and what it is asked over.
const (
	http1 = "http1"
	http2 = "http2"
	http3 = "http3"
)

const (
	// rounds are how many times each server is started anew and given each row.
	rounds = 3
	// large and largeQuick are the large file in bytes.
	large      = 64 << 20
	largeQuick = 4 << 20
	// answerTimeout is how long one answer may take: the large file over a link that
	// loses packets takes minutes over TCP.
	answerTimeout = 10 * time.Minute
	// startTime is how long a server may take until it answers over a protocol.
	startTime = 10 * time.Second
	// compressing is how long a server may take to compress what it was asked for
	// first; millrace does that beside its answers.
	compressing = 700 * time.Millisecond
)

func peers() []experiment.Peer {
	return []experiment.Peer{{Arm: http1, Name: "HTTP/1.1"}, {Arm: http2, Name: "HTTP/2"}, {Arm: http3, Name: "HTTP/3"}}
}

// The metrics of tasks.
const (
	usual = "time_ns"
	slow  = "slow_ns"
)

func metrics() []record.Metric {
	return []record.Metric{
		{Key: experiment.CPU, Name: "CPU time", Unit: "ns", About: "of the server, for each request, view or download, user and kernel; what the kernel does when a packet arrives counts for whoever it interrupts, which over the link is the lab"},
		{Key: usual, Name: "time", Unit: "ns", About: "that the client waits for one: the median"},
		{Key: slow, Name: "time of the slow ones", Unit: "ns", About: "that one in twenty takes at least"},
	}
}

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "protocols",
		Title: "HTTP/1.1, HTTP/2 and HTTP/3 side by side, with and without lost packets",
		Question: "What does the same answer cost the server, and how long does the client wait, over HTTP/1.1 with TLS, HTTP/2 and HTTP/3: a small page, " +
			"a page with 30 assets, a large file, on the machine itself and over a link that loses packets?",
		Claim: "HTTP/3 costs the server more CPU time than HTTP/2, and its clients wait less where packets are lost.",
		Rule: fmt.Sprintf("In each of %d rounds the server is started anew for each protocol and does every row once, in random order within a row. "+
			"Figures are medians of the rounds. There are no verdicts: three rounds are too few for the lab's tests. The link is a network namespace of its own, "+
			"whose packets the lab carries itself, with a delay of %v in each direction, and loses with a chance that is drawn for each packet, in both directions. TCP and QUIC find their rates by Reno there. "+
			"The result is void when an answer is not complete.", rounds, delay),
		Selects: true,
		Run:     run,
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	divisor   int    // of how often each thing is done: more than 1 in a quick run
	cert, key string // files
	large     int64  // bytes of the large file
	link      *link.Link
	noLink    error // why there is none
}

func run(ctx context.Context, env experiment.Env, res *record.Result) (err error) {
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env, Site: filepath.Join(env.Work, "site")},
		divisor: 1, large: large,
	}
	quick := env.Mode != record.Full
	if quick {
		m.divisor, m.large = 3, largeQuick
	}
	if m.link, m.noLink = link.Open(env.Seed); m.link != nil {
		defer func() { err = errors.Join(err, m.link.Close()) }()
	}
	chosen, err := experiment.ChooseRows(m.rows(), env.Only, quick, m.Note)
	if err != nil {
		return err
	}
	if err := experiment.WriteSite(m.Site, slices.Concat(experiment.Site(), experiment.PageFiles())); err != nil {
		return err
	}
	if err := experiment.WriteLarge(m.Site, m.large); err != nil {
		return err
	}
	if m.cert, m.key, err = experiment.Certificate(env.Work); err != nil {
		return err
	}
	m.Built()
	schedule := experiment.Schedule{Rounds: rounds, QuickRounds: 1, Slot: time.Second, QuickSlot: time.Second}
	err = trial.Run(ctx, schedule.Plan(m.arms(), chosen, metrics(), env), res, m.Part(0, 1, 0))
	m.conclude(res, chosen)
	return err
}

// arms are the same server three times.
func (m *measurement) arms() []trial.Arm {
	var all []trial.Arm
	for _, p := range peers() {
		a := m.Arm(p.Arm, "millrace serve with http3: true, no log; asked over "+p.Name, m.server())
		if a.Start != nil {
			a.Start = func(ctx context.Context) (*trial.Instance, error) { return m.start(ctx, p.Arm) }
		}
		all = append(all, a)
	}
	return all
}

// server is millrace by the config that the experiment tls has for HTTP/3. In the
// link's network it listens at all addresses, in the machine's at the loopback one.
func (m *measurement) server() experiment.Launch {
	l := m.With(m.MillraceWith(func(p experiment.Place) []string {
		return []string{"serve", "--config", experiment.ConfigFile(p), "--log", "off", "--admin", "off"}
	}), experiment.Config{Peer: "millrace", Template: "tls.yaml.tmpl", Fields: func(experiment.Place) map[string]string {
		fields := map[string]string{"Cert": m.cert, "Key": m.key}
		if m.link != nil {
			fields["Host"] = "0.0.0.0"
		}
		return fields
	}})
	l.Socket = true // by which the lab sees from its own network that it listens
	l.URLs = func(p experiment.Place) map[string]string { return map[string]string{"": "https://" + p.Address + "/"} }
	return l
}

// start starts a server, and returns when it answers with the right page.
func (m *measurement) start(ctx context.Context, arm string) (*trial.Instance, error) {
	m.set(link.Conditions{})
	command := exec.Command
	if m.link != nil {
		command = m.link.Command
	}
	in, err := m.Start(ctx, arm, command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err = m.look(ctx, arm, in.URL[""])
		if err == nil {
			if err = experiment.Sleep(ctx, compressing); err == nil {
				return in, nil
			}
		}
		if experiment.Sleep(ctx, 50*time.Millisecond) != nil {
			return nil, errors.Join(fmt.Errorf("%s does not answer: %w", arm, err), in.Stop())
		}
	}
}

// look compares the small page, and asks for all that the server may compress.
func (m *measurement) look(ctx context.Context, arm, url string) error {
	paths := []string{"/"}
	for _, f := range experiment.PageFiles() {
		paths = append(paths, f.Path)
	}
	d, err := client.New(m.options(arm, url, places()[0], paths...))
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	c, err := d.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // likewise
	var page strings.Builder
	if _, err = c.Do(ctx, 0, &page); err == nil && page.String() != string(experiment.Site()[0].Content()) {
		err = fmt.Errorf("%w: %d bytes of another page", experiment.ErrAnswer, page.Len())
	}
	for i := 1; i < len(paths) && err == nil; i++ {
		err = experiment.Ask(ctx, c, i)
	}
	return err
}

// conclude adds the table and the answer.
func (m *measurement) conclude(res *record.Result, chosen []experiment.Row) {
	t := record.Table{
		Title: "The three protocols side by side", Lead: true,
		About: "Medians of the rounds. " + m.where(),
	}
	res.Tables = append(res.Tables, experiment.Side(t, res, chosen, []experiment.Figure{
		{Metric: experiment.CPU, Name: "CPU time of the server"}, {Metric: usual, Name: "time, median"}, {Metric: slow, Name: "time, one in twenty takes longer"},
	}, peers()))
	if m.link != nil {
		c := m.link.Counts()
		if tcp := m.link.TCP(); tcp != "reno" {
			m.Note("TCP finds its rate by %s here, and not by Reno as QUIC does: rows with lost packets compare that, too", tcp)
		}
		m.Note("the link carried %d packets, lost %d as it should, and %d because too many were under way", c.Delivered, c.Lost, c.Crowded)
	}
	var parts []string
	// Where none of the rows for the answer was measured, it is about all.
	all := !slices.ContainsFunc(chosen, func(r experiment.Row) bool { return r.Headline || r.Name == "small" })
	for _, r := range chosen {
		metric, what := usual, "takes"
		if r.Name == "small" {
			metric, what = experiment.CPU, "costs the server"
		} else if !r.Headline && !all {
			continue
		}
		var figures []string
		for _, p := range peers() {
			if v := experiment.MedianOf(res, p.Arm, r.Name, metric); v > 0 {
				figures = append(figures, experiment.Duration(v)+" over "+p.Name)
			}
		}
		if len(figures) > 0 {
			parts = append(parts, fmt.Sprintf("“%s” %s %s", r.Name, what, experiment.List(figures)))
		}
	}
	res.Answer = strings.Join(parts, "; ")
}

// where says where rows are measured.
func (m *measurement) where() string {
	var parts []string
	for _, p := range places() {
		name := "Rows without a suffix"
		if p.suffix != "" {
			name = "“" + p.suffix + "”"
		}
		parts = append(parts, name+": "+p.about)
	}
	return strings.Join(parts, ". ") + "."
}
