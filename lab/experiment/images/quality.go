package images

import (
	"context"
	_ "embed" // the script
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"millrace/lab/record"
)

//go:embed quality.py
var script []byte

// python is the package that computes SSIMULACRA2.
const python = "ssimulacra2==0.3.0"

// errScore is what went wrong with a score.
var errScore = errors.New("computing SSIMULACRA2")

// quality adds a table with the SSIMULACRA2 of each distinct WebP. That takes two
// seconds of CPU and half a GB of memory for each megapixel, so what was computed
// once for the same two files is kept. It comes after all that is timed.
func (m *measurement) quality(ctx context.Context) error {
	if len(m.samples) == 0 {
		return nil
	}
	if exec.CommandContext(ctx, "python3", "-c", "import ssimulacra2, PIL").Run() != nil {
		m.Note("SSIMULACRA2 is left out: its Python package is missing; python3 -m pip install %s pillow", python)
		return nil
	}
	keep := filepath.Join(m.Env.Work, "ssimulacra2.json")
	if m.Env.Bench != nil {
		keep = filepath.Join(m.Env.Bench.Dir, "out", "ssimulacra2.json")
	}
	known := readScores(keep)
	originals := map[string]photograph{}
	for _, p := range m.photos {
		originals[p.name] = p
	}
	scores := map[string]map[string]float64{} // by arm, then by photograph
	for s, file := range m.samples {
		key := originals[s.photo].hash + " " + s.hash
		v, ok := known[key]
		if !ok {
			m.Emit(record.Event{Kind: record.EventStep, Text: "SSIMULACRA2 of " + s.photo + " by " + s.arm})
			var err error
			if v, err = score(ctx, filepath.Join(m.Site, s.photo), file); err != nil {
				m.Note("SSIMULACRA2 is not known of all results: %v", err)
				continue
			}
			known[key] = v
			if err := writeScores(keep, known); err != nil {
				return err
			}
		}
		if scores[s.arm] == nil {
			scores[s.arm] = map[string]float64{}
		}
		scores[s.arm][s.photo] = v
	}
	m.Res.Tables = append(m.Res.Tables, m.scoreTable(scores))
	return nil
}

// scoreTable shows the scores, a row for each photograph.
func (m *measurement) scoreTable(scores map[string]map[string]float64) record.Table {
	arms := slices.Sorted(maps.Keys(scores))
	t := record.Table{
		Title:   "How good the results are",
		About:   "SSIMULACRA2 against the original, both as sRGB: 70 is high quality, more is better. Computed once for each pair of files.",
		Columns: append([]string{"photograph"}, arms...),
	}
	for _, p := range m.photos {
		row := []string{p.name}
		for _, arm := range arms {
			v, ok := scores[arm][p.name]
			if !ok {
				row = append(row, "–")
				continue
			}
			row = append(row, fmt.Sprintf("%.2f", v))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// score is a process for one result: all its memory is given back with it.
func score(ctx context.Context, original, webp string) (v float64, err error) {
	cmd := exec.CommandContext(ctx, "python3", "-c", string(script))
	cmd.Stdin = strings.NewReader(original + "\t" + webp + "\n")
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errScore, err)
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if word != "ok" {
		return 0, fmt.Errorf("%w: %s", errScore, rest)
	}
	if _, err = fmt.Sscan(rest, &v); err != nil {
		err = fmt.Errorf("%w: %w", errScore, err)
	}
	return v, err
}

// readScores reads what earlier runs have computed; nothing if that cannot be
// read, and it is computed anew.
func readScores(name string) map[string]float64 {
	known := map[string]float64{}
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil || known == nil {
		return map[string]float64{}
	}
	return known
}

func writeScores(name string, known map[string]float64) error {
	text, err := json.MarshalIndent(known, "", " ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o755)
	}
	if err == nil {
		err = os.WriteFile(name, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keeping scores: %w", err)
	}
	return nil
}
