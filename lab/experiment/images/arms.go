package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// The arms.
const (
	vips      = "vips"
	cwebp     = "cwebp"
	cwebpFast = "cwebp-m2"
	nginx     = "nginx"
	millrace  = "millrace"
	embedded  = "millrace-embedded"
	strict    = "millrace-strict"
)

const (
	// control is where an instance of millrace says what it has converted, among
	// its URLs.
	control = "control"
	// memory is what conversions may take together, in MiB.
	memory = 512
)

// The words in a command that stand for files.
const (
	inFile  = "IN"
	outFile = "OUT"
)

// command converts a photograph in a process of its own, which is started for
// each of them.
type command struct {
	name, about string
	args        []string
	pkg         string // of Debian
	version     []string
}

// commandList are those to compare with; vips is the baseline.
func commandList() []command {
	return []command{
		{vips, "vips webpsave, a process for each photograph", []string{"vips", "webpsave", inFile, outFile, "--Q", "80"}, "libvips-tools", []string{"--version"}},
		{cwebp, "cwebp with its method 4, a process for each photograph", []string{"cwebp", "-quiet", "-q", "80", inFile, "-o", outFile}, "webp", []string{"-version"}},
		{cwebpFast, "cwebp with its method 2", []string{"cwebp", "-quiet", "-q", "80", "-m", "2", inFile, "-o", outFile}, "webp", []string{"-version"}},
	}
}

// arms are all, the baseline first.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	var arms []trial.Arm
	for _, c := range commandList() {
		arms = append(arms, m.command(ctx, c))
	}
	server := m.Arm(nginx, "nginx with the same bytes in files", m.NginxWith(ctx, "nginx.conf.tmpl", func(p experiment.Place) map[string]string {
		return map[string]string{"Site": m.answers, "Address": p.Address, "Socket": p.Socket, "Log": ""}
	}))
	tools := m.Arm(millrace, "millrace with the engine tools, which starts cwebp", m.millrace("tools", false))
	tools.Start = m.readied(tools.Start)
	if _, err := subject.Look("cwebp", "webp"); err != nil {
		tools.Skipped = err.Error()
	}
	return append(arms, server, tools,
		m.Arm(embedded, "millrace with the engine embedded", m.millrace("embedded", false)),
		m.Arm(strict, "millrace that serves nothing but pictures", m.millrace("embedded", true)),
	)
}

// command is the arm of a command: its task starts it, and says what it cost.
func (m *measurement) command(ctx context.Context, c command) trial.Arm {
	a := trial.Arm{Name: c.name, About: c.about, Command: c.args}
	exe, err := subject.Look(c.args[0], c.pkg)
	if err != nil {
		a.Skipped = err.Error()
		return a
	}
	m.commands[c.name] = c
	a.Version = strings.TrimPrefix(subject.Version(ctx, exe, c.version...), "vips-")
	a.Start = func(context.Context) (*trial.Instance, error) {
		return &trial.Instance{Reports: true, URL: map[string]string{}}, nil
	}
	return a
}

// millrace is its command with a config that converts the site's images to WebP
// when they are asked for, and never again in the background: what is measured
// is the work on demand. Visitors wait for as long as millrace allows.
func (m *measurement) millrace(engine string, onlyImages bool) experiment.Launch {
	exe := m.Env.Millrace
	if exe == "" {
		return experiment.Launch{Missing: experiment.ErrNoMillrace}
	}
	config := func(p experiment.Place) string { return filepath.Join(p.Dir, "millrace.yaml") }
	admin := func(p experiment.Place) string { return filepath.Join(p.Dir, "admin") }
	return experiment.Launch{
		Exe: exe, Version: subject.GoVersion(exe, ""),
		Args: func(p experiment.Place) []string { return []string{"serve", "--config", config(p)} },
		Prepare: func(p experiment.Place) error {
			text := fmt.Sprintf("listen: [%q]\nlog: {format: off}\nadmin: {listen: %q}\nsites:\n  - routes:\n      /:\n        static: {root: %q}\n"+
				"        images: {engine: %s, formats: [webp], quality: 80, no_best: true, wait: %v, memory: %dMiB, only_images: %t, store: %q}\n",
				p.Address, "unix:"+admin(p), p.Site, engine, visit, memory, onlyImages, filepath.Join(p.Dir, "variants"))
			if err := os.WriteFile(config(p), []byte(text), 0o600); err != nil {
				return fmt.Errorf("writing the config of the image server: %w", err)
			}
			return nil
		},
		URLs: func(p experiment.Place) map[string]string { return map[string]string{control: "unix:" + admin(p)} },
	}
}

// asked is how often an image is asked for until it is answered as it will be
// from then on.
const asked = 3

// readied has a server that has just started convert what is served ready.
func (m *measurement) readied(start func(context.Context) (*trial.Instance, error)) func(context.Context) (*trial.Instance, error) {
	return func(ctx context.Context) (*trial.Instance, error) {
		in, err := start(ctx)
		if err != nil {
			return nil, err
		}
		if err := m.askReady(ctx, in); err != nil {
			return nil, errors.Join(err, in.Stop())
		}
		return in, nil
	}
}

// errBytes is why what is ready cannot be compared.
var errBytes = errors.New("it is sent with other bytes than before")

// askReady asks for what is served ready. The bytes are the same each time.
func (m *measurement) askReady(ctx context.Context, in *trial.Instance) error {
	client := newClient()
	defer client.CloseIdleConnections()
	for _, r := range readyPhotos() {
		for range asked {
			got, err := ask(ctx, client, in.URL[""]+r.path()[1:])
			if err != nil {
				return err
			}
			if !got.webp {
				return fmt.Errorf("%s is sent as the original: %s", r.path(), got.why)
			}
			if was, known := m.ready[r.path()]; known && !bytes.Equal(was, got.body) {
				return fmt.Errorf("%s: %w", r.path(), errBytes)
			}
			m.ready[r.path()] = got.body
		}
	}
	return nil
}

// convertReady makes the files that nginx serves: what millrace answers.
func (m *measurement) convertReady(ctx context.Context, arms []trial.Arm) error {
	if err := os.MkdirAll(m.answers, 0o755); err != nil {
		return fmt.Errorf("making a folder for nginx: %w", err)
	}
	i := slices.IndexFunc(arms, func(a trial.Arm) bool { return a.Name == millrace })
	if arms[i].Skipped != "" {
		return nil
	}
	in, err := arms[i].Start(ctx)
	if err != nil {
		return err
	}
	for name, body := range m.ready {
		err = errors.Join(err, writeOld(filepath.Join(m.answers, name), body))
	}
	return errors.Join(err, in.Stop())
}
