package report

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"millrace/lab/record"
)

// Benchstat writes every sample as a line of Go's benchmark format
// (golang.org/design/14313-benchmark-format), so that
// `benchstat -col /arm FILE` reads it: BenchmarkOnePage/arm=nginx-2 1 21000
// cpu-ns 47600 requests/s. Units carry the metric's key, and say whether more is
// better.
func Benchstat(w io.Writer, res *record.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\n", runtime.GOOS, runtime.GOARCH)
	for _, p := range [][2]string{{"cpu", res.Machine.CPU}, {"pkg", "millrace/lab/" + slug(res.Name, "result")}} {
		if p[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", p[0], oneLine(p[1]))
		}
	}
	for _, s := range stamps(res) {
		key, text, _ := strings.Cut(oneLine(s), ": ")
		fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(key), text)
	}
	units := benchUnits(res)
	for _, m := range res.Metrics {
		better := "lower"
		if m.Higher {
			better = "higher"
		}
		fmt.Fprintf(&b, "Unit %s better=%s\n", units[m.Key], better)
	}
	var arms, workloads []string
	for _, a := range res.Arms {
		arms = append(arms, a.Name)
	}
	for _, w := range res.Workloads {
		workloads = append(workloads, w.Name)
	}
	arm, workload := distinct(arms, word), distinct(workloads, camel)
	for _, s := range res.Samples {
		if line := benchLine(s, units); line != "" {
			fmt.Fprintf(&b, "Benchmark%s/arm=%s-%d 1%s\n", workload[s.Workload], arm[s.Arm], max(res.Machine.Cores, 1), line)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing for benchstat: %w", err)
	}
	return nil
}

// benchLine are a sample's figures with their units.
func benchLine(s record.Sample, units map[string]string) string {
	line := ""
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		if unit := units[key]; unit != "" && number(s.Values[key]) {
			line += " " + strconv.FormatFloat(s.Values[key], 'g', -1, 64) + " " + unit
		}
	}
	return line
}

// distinct spells names in another way and keeps them apart: benchstat would
// take two workloads of one spelling for one.
func distinct(names []string, spell func(string) string) map[string]string {
	spelled, taken := map[string]string{}, map[string]bool{}
	for i, name := range names {
		s := spell(name)
		for taken[s] {
			s += "." + strconv.Itoa(i+1)
		}
		taken[s] = true
		spelled[name] = s
	}
	return spelled
}

// camel makes a benchmark's name of a workload's: "/ alone" is Alone.
func camel(s string) string {
	var b strings.Builder
	up := true
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			up = true
			continue
		case up:
			r = unicode.ToUpper(r)
		}
		up = false
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "Workload"
	}
	return b.String()
}

// word makes one word without the signs that have a meaning in names.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || strings.ContainsRune(`/="\`, r) {
			return '_'
		}
		return r
	}, oneLine(s))
	if s == "" {
		return "unnamed"
	}
	return s
}

// benchUnits are the units of all metrics: the key, less a unit at its end, and
// the unit. benchstat makes seconds of whatever ends in ns.
func benchUnits(res *record.Result) map[string]string {
	units := map[string]string{}
	taken := map[string]bool{}
	for _, m := range res.Metrics {
		key := strings.ReplaceAll(word(m.Key), "_", "-")
		short := key
		for _, end := range []string{"-ns", "-bytes", "-per-second"} {
			short = strings.TrimSuffix(short, end)
		}
		unit := short
		switch m.Unit {
		case "":
		case "1/s":
			unit = short + "/s"
		case "bytes":
			unit = short + "-B"
		case "bytes/s":
			unit = short + "-B/s"
		default:
			unit = short + "-" + word(m.Unit)
		}
		for taken[unit] {
			unit = key + "-" + unit
		}
		taken[unit] = true
		units[m.Key] = unit
	}
	return units
}
