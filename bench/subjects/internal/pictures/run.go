package pictures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

// runner is a run under way.
type runner struct {
	*stage.Stage
	plan    Plan
	found   *record.Images
	site    string // the folder of the photographs
	folders int    // given to servers
	started map[string]bool
	samples map[sample]string // the file of each distinct WebP
}

// sample is one WebP of a photograph.
type sample struct{ photo, hash string }

// Run carries out the plan and returns what was measured. It stops what it
// started, also when ctx ends it early.
func Run(ctx context.Context, p Plan, places stage.Places, out io.Writer) (*record.Run, error) {
	if len(p.engines()) == 0 {
		return nil, errors.New("none of the arms converts pictures")
	}
	steps, total := p.steps()
	s, err := stage.New("images", p.Plan, places, steps, total, out)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	r := &runner{
		Stage: s, plan: p, started: map[string]bool{}, samples: map[sample]string{},
		found: &record.Images{Parts: p.Parts}, site: filepath.Join(places.Temp, "photos"),
	}
	s.Run.Images = r.found
	if r.found.Photos, err = copyPhotos(r.site, p.photos); err != nil {
		return nil, err
	}
	for _, a := range p.Arms {
		s.Run.Arms = append(s.Run.Arms, record.Arm{Name: a.Name, Title: a.Title, Program: string(a.Program), Variant: a.Variant, Ours: a.Ours()})
	}
	measured := 0
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{ConvertPart, r.convert}, {MemoryPart, r.memory}, {CachedPart, r.cached}, {CrowdPart, r.crowds}, {RefusedPart, r.refused}} {
		if !p.has(part.name) {
			continue
		}
		err := part.run(ctx)
		r.Stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil { // the other parts are not lost for that
			r.note("%s ended early: %v", part.name, err)
			continue
		}
		measured++
	}
	if measured == 0 {
		return nil, fmt.Errorf("nothing was measured to its end: %s", strings.Join(r.found.Notes, "; "))
	}
	r.Run.Took = r.Meter.Took()
	return r.Run, nil
}

// start starts a server in a folder of its own, with nothing converted. The
// caller stops it.
func (r *runner) start(ctx context.Context, a arm.Arm, site string, o arm.Images) (*arm.Running, error) {
	r.folders++
	server, err := r.StartOne(ctx, a, fmt.Sprintf("%s-%d", a.Name, r.folders), arm.Env{Site: site, Images: o})
	if err != nil {
		return nil, err
	}
	if !r.started[a.Name] {
		r.started[a.Name] = true
		r.command(a.Name, r.Placeholders(server), r.config(server))
	}
	return server, nil
}

// command keeps how something was started.
func (r *runner) command(name, line, config string) {
	r.found.Commands = append(r.found.Commands, record.ImageCommand{Name: name, Command: line, Config: config})
}

// note keeps a sentence for the reader, and prints it.
func (r *runner) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.found.Notes = append(r.found.Notes, text)
	r.Meter.Say("%s", text)
}

// fits tells whether another round like the last one ends within the budget of a
// part; if not, it says so to the reader.
func (r *runner) fits(part string, began, round time.Time, done int) bool {
	if now := time.Now(); now.Sub(began)+now.Sub(round) <= convertBudget {
		return true
	}
	r.note("%s: only %d rounds, the time for more was over", part, done)
	return false
}
