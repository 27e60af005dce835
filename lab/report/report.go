// Package report writes what a measurement found: as the JSON file that holds
// all of it, as one HTML page, as Markdown, as text for a terminal, as lines for
// benchstat, and its charts as PNG. All of them have
// the same order: first whether the result is valid at all, then what was
// claimed, what was measured and what that proves, then all the data behind it.
//
// A failed gate stands before any figure, and a file that cannot be read to its
// end makes no report.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
)

// maxPictures is how many charts Files draws as PNG: CPU and memory of a few
// arms. The others are in the page.
const maxPictures = 8

// Files writes a result into a folder, which is made if it is not there:
// NAME.json, NAME.html, NAME.md, NAME.txt (for benchstat) and a PNG of each
// chart of CPU or memory over time. Each file is there as a whole or not at all.
// It returns the files that were written, also when some could not be.
func Files(dir string, res *record.Result) ([]string, error) { return files(dir, res, false) }

// Draw is Files without the JSON, for a result that was read from some. A file that is
// there already is left alone, and an error.
func Draw(dir string, res *record.Result) ([]string, error) { return files(dir, res, true) }

func files(dir string, res *record.Result, again bool) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder for the report: %w", err)
	}
	type file struct {
		name  string
		write func(io.Writer, *record.Result) error
	}
	name := slug(res.Name, "result")
	files := []file{{name + ".json", Write}, {name + ".html", HTML}, {name + ".md", Markdown}, {name + ".txt", Benchstat}}
	if again {
		files = files[1:]
	}
	for _, c := range usageCharts(res) {
		draw := func(w io.Writer, _ *record.Result) error { return PNG(w, c) }
		files = append(files, file{name + "-" + slug(c.Title, "chart") + ".png", draw})
	}
	var written []string
	var failed error
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		var b bytes.Buffer
		err := f.write(&b, res)
		// What was measured is kept even where it cannot be read back.
		if err == nil || errors.Is(err, errInconsistent) {
			if _, there := os.Stat(path); again && there == nil {
				failed = errors.Join(failed, fmt.Errorf("%s is there already: move it, or name another folder", path))
				continue
			}
			if writeErr := writeWhole(path, b.Bytes()); writeErr != nil {
				err = errors.Join(err, writeErr)
			} else {
				written = append(written, path)
			}
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("writing %s: %w", path, err))
		}
	}
	return written, failed
}

// writeWhole puts a file in its place when it is complete.
func writeWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after the rename it is gone
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// maxSlug is the length of a file's name without its end, in bytes.
const maxSlug = 60

// slug makes a name for a file of any text: lower-case letters, digits and
// dashes, so that a result cannot name a path.
func slug(s, otherwise string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
		} else {
			dash = true
		}
		if b.Len() >= maxSlug {
			break
		}
	}
	if b.Len() == 0 {
		return otherwise
	}
	return b.String()
}

// The size of a chart's image, in CSS pixels; its file has twice as many.
const (
	pictureWidth  = 800
	pictureHeight = 300
)

// PNG draws one chart.
func PNG(w io.Writer, c record.Chart) error {
	if err := chart.PNG(w, chart.Size{Width: pictureWidth, Height: pictureHeight}, lineOf(c)); err != nil {
		return fmt.Errorf("drawing %q: %w", c.Title, err)
	}
	return nil
}

// Usage draws the charts of CPU and memory over time below each other in one
// image. It fails where there are none.
func Usage(w io.Writer, res *record.Result) error {
	var lines []*chart.Line
	for _, c := range usageCharts(res) {
		lines = append(lines, lineOf(c))
	}
	if len(lines) == 0 {
		return errors.New("there are no charts of CPU or memory over time: the target's process was not found, name it with --pid")
	}
	if err := chart.PNG(w, chart.Size{Width: pictureWidth, Height: pictureHeight}, lines...); err != nil {
		return fmt.Errorf("drawing CPU and memory: %w", err)
	}
	return nil
}

// usageCharts are the charts of CPU or memory over time.
func usageCharts(res *record.Result) []record.Chart {
	var found []record.Chart
	for _, c := range res.Charts {
		title := strings.ToLower(c.Title)
		about := strings.Contains(title, "cpu") || strings.Contains(title, "memory") || strings.Contains(title, "rss") || strings.Contains(title, "ram")
		if about && c.X.Unit == "s" && len(found) < maxPictures {
			found = append(found, c)
		}
	}
	return found
}

func lineOf(c record.Chart) *chart.Line {
	l := &chart.Line{
		Title: c.Title, About: c.About,
		X: chart.Axis{Name: c.X.Name, Unit: c.X.Unit, Log: c.X.Log},
		Y: chart.Axis{Name: c.Y.Name, Unit: c.Y.Unit, Log: c.Y.Log},
	}
	for _, s := range c.Series {
		l.Series = append(l.Series, chart.Series{Name: s.Name, Points: s.Points})
	}
	return l
}
