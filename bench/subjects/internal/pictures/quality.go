package pictures

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed" // the script
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"millrace/bench/subjects/internal/record"
)

//go:embed quality.py
var script []byte

const (
	// python is the package that computes SSIMULACRA2.
	python = "ssimulacra2==0.3.0"
	// perMegapixel is the memory that it takes, from a run: it works in doubles.
	perMegapixel = 600 << 20
	// scorers run side by side, if there is memory for them.
	scorers = 2
	// sayEvery is after how many results a line says how far it is.
	sayEvery = 10
)

// quality computes the SSIMULACRA2 of each distinct WebP. It takes seconds for
// each megapixel, so what was computed once for the same two files is kept.
// Nothing else runs meanwhile, and nothing of it is timed.
func (r *runner) quality(ctx context.Context) error {
	keep := filepath.Join(r.Places.Bench, "out", "ssimulacra2.json")
	known := readScores(keep)
	photos := map[string]record.Photo{}
	for _, p := range r.found.Photos {
		photos[p.Name] = p
	}
	var todo []sample
	for s := range r.samples {
		if _, ok := known[photos[s.photo].Hash+" "+s.hash]; !ok {
			todo = append(todo, s)
		}
	}
	// The largest first, so that the scorers end together.
	slices.SortFunc(todo, func(a, b sample) int {
		return cmp.Or(cmp.Compare(photos[b.photo].Megapixels, photos[a.photo].Megapixels), cmp.Compare(a.hash, b.hash))
	})
	var problem error
	if len(todo) > 0 {
		// Written down one by one: a run that is stopped has not worked for nothing.
		done := func(s sample, v float64) error {
			known[photos[s.photo].Hash+" "+s.hash] = v
			return writeScores(keep, known)
		}
		problem = r.score(ctx, todo, photos[todo[0].photo].Megapixels, done)
	}
	for s := range r.samples {
		if v, ok := known[photos[s.photo].Hash+" "+s.hash]; ok {
			r.found.Scores = append(r.found.Scores, record.Score{Photo: s.photo, Hash: s.hash, Value: v})
		}
	}
	if problem != nil && ctx.Err() == nil {
		r.note("SSIMULACRA2 is not known of all results: %v", problem)
	}
	r.Meter.Step(scoreGuess, "SSIMULACRA2 of %d results, %d of them computed now", len(r.found.Scores), len(todo))
	return nil
}

// score has Python compute what is to be computed, in processes side by side. It
// calls done with each result, one after the other.
func (r *runner) score(ctx context.Context, todo []sample, largest float64, done func(sample, float64) error) error {
	path, err := r.scorer(ctx)
	if err != nil {
		return err
	}
	n := max(1, min(scorers, int(float64(r.Run.Machine.Memory)/2/(largest*perMegapixel))))
	var mu sync.Mutex // guards what follows, and is held while done is called
	next, scored := 0, 0
	var problems error
	take := func() (s sample, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(todo) || ctx.Err() != nil {
			return s, false
		}
		next++
		return todo[next-1], true
	}
	var all sync.WaitGroup // of one goroutine for each process
	for range n {
		all.Go(func() {
			for s, ok := take(); ok; s, ok = take() {
				v, err := r.scoreOne(ctx, path, s)
				mu.Lock()
				if err == nil {
					err = done(s, v)
				}
				if scored++; err != nil && problems == nil {
					problems = fmt.Errorf("%s: %w", s.photo, err)
				}
				if scored%sayEvery == 0 {
					r.Meter.Say("SSIMULACRA2: %d of %d", scored, len(todo))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return problems
}

// scoreOne is a process for one result: all its memory is given back with it.
func (r *runner) scoreOne(ctx context.Context, path string, s sample) (float64, error) {
	cmd := exec.CommandContext(ctx, "python3", "-c", string(script))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdin = strings.NewReader(filepath.Join(r.site, s.photo) + "\t" + r.samples[s] + "\n")
	var moans bytes.Buffer // a traceback, no more
	cmd.Stderr = &moans
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("computing SSIMULACRA2: %w: %.300s", err, moans.String())
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if word != "ok" {
		return 0, fmt.Errorf("computing SSIMULACRA2: %s", rest)
	}
	var v float64
	_, err = fmt.Sscan(rest, &v)
	return v, err
}

// scorer is a folder for PYTHONPATH in which the Python packages are: none where
// they are installed, otherwise one that is filled and removed with the run.
func (r *runner) scorer(ctx context.Context) (path string, err error) {
	if exec.CommandContext(ctx, "python3", "-c", "import ssimulacra2, PIL").Run() == nil {
		return "", nil
	}
	dir := filepath.Join(r.Places.Temp, "python")
	r.Meter.Say("installing the Python package %s in a temporary folder", python)
	if text, err := exec.CommandContext(ctx, "python3", "-m", "pip", "install", "--quiet", "--target", dir, python, "pillow").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the Python package ssimulacra2 is missing, and pip could not install it (%w: %.200s); "+
			"python3 -m pip install %s pillow", err, text, python)
	}
	return dir, nil
}

// readScores reads what earlier runs have computed; nothing if that cannot be
// read, and it is computed anew.
func readScores(name string) map[string]float64 {
	known := map[string]float64{}
	f, err := os.Open(name)
	if err != nil {
		return known
	}
	defer f.Close()
	if err := json.NewDecoder(bufio.NewReader(f)).Decode(&known); err != nil {
		return map[string]float64{}
	}
	return known
}

func writeScores(name string, known map[string]float64) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	text, err := json.MarshalIndent(known, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}
