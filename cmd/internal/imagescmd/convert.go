package imagescmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/images"
)

// shownNames is how many images are named for each cause of a failure.
const shownNames = 3

// convert converts a folder's images and prints what came of it.
func (a imageFolder) convert(ctx context.Context, jobs int, s cli.Streams) (err error) {
	o, err := a.open(ctx, jobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	can := o.Abilities()
	if len(can.Formats) == 0 {
		return cli.Failure(errors.New("none of the formats can be written here"), "leave --formats and images.engine out: what is built in writes both")
	}
	s.Print("converting the images of %s: %s\n", a.name, Writers(can))
	r := conversion{imageFolder: a, began: time.Now(), cut: map[string]bool{}}
	var b *cli.Bar
	failed := 0
	r.summary, err = o.Ahead(ctx, images.AheadOptions{Jobs: jobs, Progress: func(p images.Progress) {
		if b == nil {
			b = cli.NewBar(s, p.Total, r.began) // the first has taken its time, too
		}
		r.total = p.Total
		switch {
		case p.Err != nil && ctx.Err() != nil && errors.Is(p.Err, ctx.Err()):
			r.cut[p.Name] = true // nothing is wrong with it
		case p.Err != nil:
			failed++
		}
		b.Step(p.Done, failed)
	}})
	if b != nil {
		b.End()
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	r.took = time.Since(r.began)
	return r.conclude(ctx, s)
}

// conversion is that of one folder.
type conversion struct {
	imageFolder
	summary images.Summary
	total   int
	began   time.Time
	took    time.Duration
	cut     map[string]bool // images that were under way when it was stopped
}

// conclude prints the table. Whether anything could be done decides the exit
// status.
func (r *conversion) conclude(ctx context.Context, s cli.Streams) error {
	sum := &r.summary
	for cause, names := range sum.Failed {
		if names = slices.DeleteFunc(names, func(n string) bool { return r.cut[n] }); len(names) == 0 {
			delete(sum.Failed, cause)
		} else {
			sum.Failed[cause] = names
		}
	}
	whole := sum.Pictures - len(r.cut)
	if sum.Pictures == 0 && ctx.Err() == nil {
		return r.empty()
	}
	usable := 0
	for _, f := range sum.Formats {
		usable += f.Made + f.Kept
	}
	if whole > 0 {
		if err := r.print(s.Out, whole); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return cli.Failure(fmt.Errorf("stopped after %d of %s; what is done is kept", whole, cli.Count(max(r.total, whole), "image")), "the same command goes on from there")
	case usable == 0:
		return fmt.Errorf("none of the images of %s could be converted", r.name)
	}
	return nil
}

// empty says what was looked for.
func (r *conversion) empty() error {
	kinds := "jpg, jpeg, png, gif, webp, bmp"
	if len(r.images.Extensions) > 0 {
		kinds = strings.Join(r.images.Extensions, ", ")
	}
	return cli.Failure(
		fmt.Errorf("there are no images in %s", r.name),
		fmt.Sprintf("name the folder that has them: `millrace images DIR`; what counts is the end of a name: %s", kinds),
	)
}

// print writes the table.
func (r *conversion) print(w io.Writer, pictures int) error {
	sum := r.summary
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s, in %s\n\n", r.name, cli.Count(pictures, "image"), cli.Amount(sum.Bytes), cli.Brief(r.took))
	rows := [][]string{{"", "converted", "found", "original smaller", "before", "after", "saved"}}
	for _, f := range slices.Sorted(maps.Keys(sum.Formats)) {
		one := sum.Formats[f]
		rows = append(rows, append([]string{FormatName(f), fmt.Sprint(one.Made), fmt.Sprint(one.Kept), fmt.Sprint(one.Original)}, saved(one.Of, one.Bytes)...))
	}
	if len(rows) > 1 {
		rows = append(rows, append([]string{"smallest of all", "", "", ""}, saved(sum.Bytes, sum.Smallest)...))
		b.WriteString(columns(rows))
	}
	r.failures(&b)
	fmt.Fprintf(&b, "\n  kept in %s\n", cli.Homely(r.dir))
	_, err := io.WriteString(w, b.String())
	return err
}

// failures lists what stays as it is, by cause.
func (r *conversion) failures(b *strings.Builder) {
	for _, cause := range slices.Sorted(maps.Keys(r.summary.Failed)) {
		names := r.summary.Failed[cause]
		slices.Sort(names)
		shown := strings.Join(names[:min(len(names), shownNames)], ", ")
		if more := len(names) - shownNames; more > 0 {
			shown += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(b, "\n  %s: %s\n    %s\n", cli.Count(len(names), "image"), reasonText(cause), shown)
	}
}

// reasonText says in words why an image was not converted.
func reasonText(cause string) string {
	return cmp.Or(map[string]string{
		"not an image": "not an image, whatever the name says: served as it is",
		"broken":       "damaged: served as it is",
		"too large":    "more megapixels than images.max_megapixels: served as it is",
		"large file":   "more bytes than images.max_size: served as it is",
		"memory":       "it would take more than images.memory: served as it is",
		"unsupported":  "cannot be written in one of the formats, such as animations in AVIF: served in another",
		"just changed": "changed this moment: run it once more",
		"not readable": "the file cannot be read",
		"crashed":      "the process that converts died of it: served as it is",
		"encoder":      "the encoder refuses it: served as it is",
		"timeout":      "it took too long: served as it is",
		"store":        "the result could not be kept: is the disk full, or images.store_size too small?",
	}[cause], "the conversion failed: served as it is")
}

// saved are the last three columns: bytes before and after, and the share that
// is gone.
func saved(before, after int64) []string {
	share := "-"
	if before > 0 {
		share = fmt.Sprintf("%.0f %%", 100*(1-float64(after)/float64(before)))
	}
	return []string{cli.Amount(before), cli.Amount(after), share}
}

// columns aligns rows: the first column to the left, figures to the right.
func columns(rows [][]string) string {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-*s", width[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&b, "  %*s", width[i+1], cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
