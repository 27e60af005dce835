package embed

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/record"
)

func sizes(res *record.Result) record.Table {
	t := record.Table{
		Title:   "Size of the executable",
		About:   "As built, with symbols. nginx's is without its modules and libraries; the embedded site adds 19 KB.",
		Columns: []string{"arm", "bytes", "against nethttp-disk"},
	}
	var size int64
	for _, a := range res.Arms {
		if a.Name == base {
			size = a.Size
		}
	}
	for _, a := range res.Arms {
		if a.Size == 0 || a.Placebo != "" {
			continue
		}
		more := "–"
		if size > 0 {
			more = experiment.Change(float64(a.Size) / float64(size))
		}
		t.Rows = append(t.Rows, []string{a.Name, fmt.Sprint(a.Size), more})
	}
	return t
}

func answerBytes(res *record.Result, probes map[string][]experiment.Probe) record.Table {
	t := record.Table{
		Title:   "Bytes per response",
		About:   "Seen once, when each arm first started. Head: status line, header and framing.",
		Columns: []string{"arm", "/, head", "/, body", "/, both", "all seven paths, heads", "bodies", "both"},
	}
	for _, a := range res.Arms {
		seen := probes[a.Name]
		if len(seen) == 0 {
			continue
		}
		var head, body int
		for _, p := range seen {
			head, body = head+p.Head, body+p.Body
		}
		row := []string{a.Name}
		for _, n := range []int{seen[0].Head, seen[0].Body, seen[0].Head + seen[0].Body, head, body, head + body} {
			row = append(row, fmt.Sprint(n))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// headers names the headers in which an arm's answers differ from the
// baseline's: bytes that are not sent are not the place of the file's doing.
func headers(res *record.Result, probes map[string][]experiment.Probe) record.Table {
	t := record.Table{
		Title: "Headers that differ",
		About: "Names of headers on / and on the other paths, against nethttp-disk. Without Last-Modified and ETag a browser " +
			"must fetch a file again and again: fewer bytes here, more for a returning visitor.",
		Columns: []string{"arm", "on / lacks", "on / adds", "elsewhere lacks", "elsewhere adds"},
	}
	first := probes[base]
	for _, a := range res.Arms {
		seen := probes[a.Name]
		if len(first) == 0 || len(seen) != len(first) || a.Name == base {
			continue
		}
		row := []string{a.Name}
		for _, group := range [][2][]experiment.Probe{{first[:1], seen[:1]}, {first[1:], seen[1:]}} {
			lacks, adds := headerNames(group[0], group[1])
			row = append(row, lacks, adds)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// headerNames are the names of headers that answers lack and add where the same
// paths of a baseline have or lack them.
func headerNames(base, seen []experiment.Probe) (lacks, adds string) {
	missing, extra := map[string]bool{}, map[string]bool{}
	for i := range base {
		for name := range base[i].Header {
			if _, ok := seen[i].Header[name]; !ok {
				missing[name] = true
			}
		}
		for name := range seen[i].Header {
			if _, ok := base[i].Header[name]; !ok {
				extra[name] = true
			}
		}
	}
	list := func(set map[string]bool) string {
		if len(set) == 0 {
			return "–"
		}
		return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
	}
	return list(missing), list(extra)
}
