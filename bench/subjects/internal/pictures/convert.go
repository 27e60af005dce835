package pictures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	used "millrace/lab/record"
)

// command converts a photograph in a process of its own, which is started for
// each of them.
type command struct {
	name string // among the arms of the part
	args []string
	pkg  string // of Debian
}

// The words in a command that stand for files.
const (
	inFile  = "IN"
	outFile = "OUT"
)

// commands are what the part convert compares with.
func commands() []command {
	return []command{
		{"vips", []string{"vips", "webpsave", inFile, outFile, "--Q", "80"}, "libvips-tools"},
		{"cwebp", []string{"cwebp", "-quiet", "-q", "80", inFile, "-o", outFile}, "webp"},
		{"cwebp-m2", []string{"cwebp", "-quiet", "-q", "80", "-m", "2", inFile, "-o", outFile}, "webp"},
	}
}

// converter is one that converts the folder: a server or a command.
type converter struct {
	name string
	arm  *arm.Arm
	command
}

// converters are all that are there; what is missing becomes a note.
func (r *runner) converters() (list []converter) {
	for _, a := range r.plan.engines() {
		list = append(list, converter{name: a.Name, arm: &a})
	}
	for _, c := range commands() {
		if _, err := exec.LookPath(c.args[0]); err != nil {
			r.note("%s is missing and was left out; it is in Debian's package %s", c.args[0], c.pkg)
			continue
		}
		r.command(c.name, strings.Join(c.args, " "), "")
		list = append(list, converter{name: c.name, command: c})
	}
	return list
}

// convert has every converter convert the folder once a round, in an order
// drawn for each, and says how good the results are.
func (r *runner) convert(ctx context.Context) error {
	if _, err := exec.LookPath("cwebp"); err != nil {
		return errors.New("the engine tools needs cwebp; it is in Debian's package webp")
	}
	list, began := r.converters(), time.Now()
	for round := 1; round <= r.plan.FolderRound; round++ {
		start := time.Now()
		stage.Shuffle(r.Random, list)
		for _, c := range list {
			if err := r.folder(ctx, c, round); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		if round < r.plan.FolderRound && !r.fits(ConvertPart, began, start, round) {
			break
		}
	}
	return r.quality(ctx)
}

// folder converts all photographs one after the other, each when the one before
// it is done.
func (r *runner) folder(ctx context.Context, c converter, round int) error {
	one := r.byCommand(c)
	cpu := func() (time.Duration, error) { return 0, nil }
	if c.arm != nil {
		server, err := r.start(ctx, *c.arm, r.site, arm.Images{Wait: visit})
		if err != nil {
			return err
		}
		defer server.Stop()
		tree, err := used.Open(server.PID())
		if err != nil {
			return err
		}
		defer tree.Close() //nolint:errcheck // it only read
		cpu = func() (time.Duration, error) { now, err := tree.Read(); return now.CPU, err }
		one = r.byServer(server, cpu)
		// What the start still has to do is not part of it.
		if err := stage.Sleep(ctx, 10*settle); err != nil {
			return err
		}
	}
	before, err := readUse(cpu)
	if err != nil {
		return err
	}
	sum := record.FolderRun{Round: round, Arm: c.name}
	for _, p := range r.found.Photos {
		got, err := stage.Apart(func() (record.Conversion, error) { return one(ctx, p) })
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		got.Round, got.Arm, got.Photo = round, c.name, p.Name
		r.found.Conversions = append(r.found.Conversions, got)
		sum.CPU += got.CPU
	}
	after, err := readUse(cpu)
	if err != nil {
		return err
	}
	if c.arm != nil {
		sum.CPU = after.server - before.server
	}
	machine := after.load.Sub(before.load)
	sum.Wall, sum.Busy, sum.Steal, sum.Harness = after.at.Sub(before.at), machine.Busy, machine.Steal, after.self-before.self
	r.found.Folders = append(r.found.Folders, sum)
	pixels := 0.0
	for _, p := range r.found.Photos {
		pixels += p.Megapixels
	}
	r.Meter.Step(folderGuess, "round %d, %-17s %6.1f ms of CPU a megapixel, %4.1f s; accounted for: %3.0f %% of what the machine did", round, c.name,
		sum.CPU.Seconds()*1e3/pixels, sum.Wall.Seconds(), 100*float64(sum.CPU+sum.Harness)/float64(sum.Busy))
	return nil
}

// folderUse is what is read before and after a folder.
type folderUse struct {
	at           time.Time
	server, self time.Duration
	load         proc.Load
}

func readUse(cpu func() (time.Duration, error)) (now folderUse, err error) {
	now.at = time.Now()
	if now.server, err = cpu(); err != nil {
		return now, err
	}
	if now.self, err = self(); err != nil {
		return now, err
	}
	now.load, err = proc.ReadLoad()
	return now, err
}

// self is the CPU that this process has used, which is the client.
func self() (time.Duration, error) {
	c, err := proc.ReadCPU([]int{os.Getpid()})
	return c.Total, err
}

// byServer asks a server for a photograph, as the article's client did.
func (r *runner) byServer(server *arm.Running, cpu func() (time.Duration, error)) func(context.Context, record.Photo) (record.Conversion, error) {
	client := server.Client("tcp")
	client.Timeout = visit + 10*time.Second
	return func(ctx context.Context, p record.Photo) (got record.Conversion, err error) {
		before, err := cpu()
		if err != nil {
			return got, err
		}
		start := time.Now()
		answer, err := ask(ctx, client, server.URL("/"+p.Name))
		if err != nil {
			return got, err
		}
		got.Took = time.Since(start)
		if err := stage.Sleep(ctx, settle); err != nil {
			return got, err
		}
		after, err := cpu()
		if err != nil {
			return got, err
		}
		got.CPU = after - before
		if !answer.webp {
			got.Fault = "the original was sent: " + answer.why
		}
		return r.keep(p, got, answer.body)
	}
}

// byCommand starts a command for a photograph and waits for it.
func (r *runner) byCommand(c converter) func(context.Context, record.Photo) (record.Conversion, error) {
	return func(ctx context.Context, p record.Photo) (got record.Conversion, err error) {
		out := filepath.Join(r.Places.Temp, "out.webp")
		args := make([]string, len(c.args))
		for i, a := range c.args {
			args[i] = strings.NewReplacer(inFile, filepath.Join(r.site, p.Name), outFile, out).Replace(a)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		start := time.Now()
		if text, err := cmd.CombinedOutput(); err != nil {
			return got, fmt.Errorf("%s: %w: %.300s", strings.Join(c.args, " "), err, text)
		}
		got.Took = time.Since(start)
		// wait4(2): what the process used, and what it waited for.
		got.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		body, err := os.ReadFile(out)
		if err != nil {
			return got, err
		}
		return r.keep(p, got, body)
	}
}

// keep writes a WebP down the first time that its bytes are seen.
func (r *runner) keep(p record.Photo, got record.Conversion, body []byte) (record.Conversion, error) {
	got.Bytes, got.Picture, got.Hash = int64(len(body)), pictureBytes(body), hashOf(body)
	key := sample{p.Name, got.Hash}
	if got.Fault != "" || r.samples[key] != "" {
		return got, nil
	}
	name := filepath.Join(r.Places.Temp, "sample-"+strings.TrimSuffix(p.Name, ".jpg")+"-"+got.Hash+".webp")
	r.samples[key] = name
	return got, os.WriteFile(name, body, 0o644)
}

// answer is what a client gets.
type answer struct {
	webp bool
	why  string // it is not
	body []byte
}

// statusHeader is where millrace says what it sent.
const statusHeader = "Millrace-Image"

// maxBody is more than any picture of a run has.
const maxBody = 64 << 20

// ask asks for a picture as a browser that takes WebP.
func ask(ctx context.Context, client *http.Client, url string) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	req.Header.Set("Accept", "image/webp")
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s answers %s: %.200s", url, resp.Status, a.body)
	}
	a.webp, a.why = resp.Header.Get("Content-Type") == "image/webp", resp.Header.Get(statusHeader)
	return a, nil
}

// config is a server's config with placeholders; empty if it has none.
func (r *runner) config(server *arm.Running) string {
	text, err := os.ReadFile(server.Env.Config())
	if err != nil {
		return ""
	}
	return strings.NewReplacer(server.Env.Dir, "DIR", server.Env.Site, "SITE", server.Env.Address, "127.0.0.1:PORT").Replace(string(text))
}
