package imagescmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/images"
	"millrace/internal/bytesize"
	"millrace/internal/config"
)

// Stats is `millrace images stats`.
type Stats struct {
	Place `embed:""`

	JSON bool `name:"json" help:"Print it as JSON, by route or folder."`

	cli.Flags `embed:""`
}

// Run asks the server that has the folder, or looks into it.
func (c *Stats) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	all, running, err := c.stats(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return s.WriteJSON(all)
	}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			name = "\n" + name
		}
		if err := printStats(s.Out, name, all[strings.TrimPrefix(name, "\n")], running); err != nil {
			return err
		}
	}
	return nil
}

// stats are those of each route of the server, or of each folder; running: a
// server has them.
func (c *Stats) stats(ctx context.Context) (all map[string]images.Stats, running bool, err error) {
	folders, err := c.folders()
	if err != nil {
		return nil, false, err
	}
	if len(folders) == 0 {
		if c.Store != "" {
			return nil, false, cli.Usage("--store alone does not say which images are meant", "name their folder, too: `millrace images stats DIR --store "+c.Store+"`")
		}
		_, all, err = theImageServer(ctx, c.Flags, "stats")
		return all, true, err
	}
	all = map[string]images.Stats{}
	for _, a := range folders {
		r, stats, err := having(ctx, c.Flags, a.dir)
		if err != nil {
			return nil, false, err
		}
		if r != nil {
			running = true
			maps.Copy(all, stats)
			continue
		}
		if all[a.name], err = a.stats(ctx); err != nil {
			return nil, false, err
		}
	}
	return all, running, nil
}

// stats are those of a folder that no server has.
func (a imageFolder) stats(ctx context.Context) (s images.Stats, err error) {
	for _, dir := range a.static.Folders() {
		if err := config.CheckDir(dir); err != nil {
			return s, err
		}
	}
	if _, err := os.Stat(a.dir); errors.Is(err, fs.ErrNotExist) {
		return s, cli.Failure(
			fmt.Errorf("nothing is kept of %s in %s", a.name, cli.Homely(a.dir)),
			fmt.Sprintf("`millrace images %s` converts its images, and so does `millrace serve %s --images` as they are asked for", a.name, a.name),
		)
	}
	o, err := a.open(ctx, 0)
	if err != nil {
		return s, err
	}
	s, err = o.Stats(ctx)
	return s, errors.Join(err, o.close())
}

// printStats writes one fact on a line, names in a column, and a table of what
// is kept.
func printStats(w io.Writer, name string, s images.Stats, running bool) error {
	var b strings.Builder
	b.WriteString(name + "\n")
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-8s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("engine", "%s: %s", s.Level, WrittenBy(s.Formats))
	if running {
		row("now", "%d running, %d waiting; %s with %s", s.Running, s.Waiting, processes(s.Workers), cli.Amount(s.WorkerBytes))
		row("since up", "%d converted, %d failed, %d found no place in the queue", s.Converted, s.Failed, s.Shed)
		if s.BytesIn > 0 {
			cpu := time.Duration(s.CPUMilliseconds) * time.Millisecond
			row("", "%s became %s, for %s of CPU", cli.Amount(int64(s.BytesIn)), cli.Amount(int64(s.BytesOut)), cli.Brief(cpu))
		}
	}
	for i, class := range slices.Sorted(maps.Keys(s.Costs)) {
		title := ""
		if i == 0 {
			title = "cost"
		}
		row(title, "%-28s %4.0f ms a megapixel", strings.Replace(class, ">", " to ", 1), s.Costs[class])
	}
	variants := 0
	for _, f := range s.Kept.Formats {
		variants += f.Kept
	}
	row("kept", "%s of %s, %s of %s in %s", cli.Count(variants, "variant"), cli.Count(s.Kept.Originals, "image"), cli.Amount(s.Kept.Bytes), bytesize.Size(s.Limit), cli.Homely(s.Folder))
	if len(s.Kept.Formats) > 0 {
		rows := [][]string{{"", "variants", "original smaller", "before", "after", "saved"}}
		for _, f := range slices.Sorted(maps.Keys(s.Kept.Formats)) {
			one := s.Kept.Formats[f]
			rows = append(rows, append([]string{FormatName(f), fmt.Sprint(one.Kept), fmt.Sprint(one.Original)}, saved(one.Of, one.Bytes)...))
		}
		b.WriteString("\n" + columns(rows))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// processes is "1 process", "2 processes".
func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
