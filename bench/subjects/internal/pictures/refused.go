package pictures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

// refusal is a server and a URL that it does not serve.
type refusal struct {
	title string
	arm   string
	path  string
	want  int // status
}

// refusals are all that is compared; the first is what the others are held
// against.
func refusals() []refusal {
	return []refusal{
		{"nginx, a picture that is not there", "nginx", "/missing.jpg", 404},
		{"millrace, a picture that is not there", arm.Tools, "/missing.jpg", 404},
		{"millrace, an extension that is not allowed", arm.Tools, "/readme.txt", 400},
	}
}

// refused has ab ask for what is not served, as the published article did.
func (r *runner) refused(ctx context.Context) error {
	if _, err := exec.LookPath("ab"); err != nil {
		return errors.New("ab is missing; it is in Debian's package apache2-utils")
	}
	site := filepath.Join(r.Places.Temp, "refused")
	if err := os.Mkdir(site, 0o755); err != nil {
		return err
	}
	if err := writeOld(filepath.Join(site, "readme.txt"), []byte("It is here, and not served.\n")); err != nil {
		return err
	}
	servers := map[string]*arm.Running{}
	for _, a := range r.plan.still() {
		server, err := r.start(ctx, a, site, arm.Images{OnlyImages: true})
		if err != nil {
			return err
		}
		defer server.Stop()
		servers[a.Name] = server
	}
	if err := stage.Sleep(ctx, rest); err != nil { // the start's worker has ended
		return err
	}
	for round := 1; round <= r.plan.Refusals; round++ {
		list := refusals()
		stage.Shuffle(r.Random, list)
		for _, c := range list {
			server := servers[c.arm]
			if server == nil {
				continue // it was left out
			}
			got, err := r.refuse(ctx, server, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.title, err)
			}
			got.Round = round
			r.found.Refusals = append(r.found.Refusals, got)
			r.Meter.Step(refuseGuess, "round %d, %-43s %6.0f requests/s, %.1f µs each", round, c.title, got.Rate, got.CPU.Seconds()*1e6/float64(got.Requests))
		}
	}
	return nil
}

// refuse is one run of ab.
func (r *runner) refuse(ctx context.Context, server *arm.Running, c refusal) (got record.Refusal, err error) {
	resp, err := server.Client("tcp").Get(server.URL(c.path))
	if err != nil {
		return got, err
	}
	resp.Body.Close()
	if resp.StatusCode != c.want {
		return got, fmt.Errorf("it is answered with %s", resp.Status)
	}
	before, err := server.CPU()
	if err != nil {
		return got, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ab", "-q", "-k", "-c", "5", "-n", strconv.Itoa(r.plan.RefusedCount), server.URL(c.path))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return got, fmt.Errorf("running ab: %w: %.300s", err, out)
	}
	if err := stage.Sleep(ctx, stage.Pause); err != nil {
		return got, err
	}
	after, err := server.CPU()
	if err != nil {
		return got, err
	}
	if got, err = parseAB(string(out)); err != nil {
		return got, err
	}
	got.Arm, got.Case, got.Status, got.CPU = c.arm, c.title, c.want, after.Sub(before).Total
	return got, nil
}

var abLine = regexp.MustCompile(`(?m)^(Complete requests|Failed requests|Non-2xx responses|Keep-Alive requests|Requests per second):\s+([0-9.]+)`)

// parseAB reads what ab prints.
func parseAB(text string) (got record.Refusal, err error) {
	values := map[string]float64{}
	for _, m := range abLine.FindAllStringSubmatch(text, -1) {
		if values[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
			return got, fmt.Errorf("reading ab's %q: %w", m[0], err)
		}
	}
	got = record.Refusal{
		Requests: uint64(values["Complete requests"]), Failed: uint64(values["Failed requests"]),
		Kept: uint64(values["Keep-Alive requests"]), Rate: values["Requests per second"],
	}
	if got.Requests == 0 || got.Rate == 0 {
		return got, fmt.Errorf("ab says nothing about requests: %.300s", text)
	}
	if refused := uint64(values["Non-2xx responses"]); refused != got.Requests {
		return got, fmt.Errorf("%d of %d requests were refused", refused, got.Requests)
	}
	return got, nil
}
