package sendfile

import (
	"fmt"
	"slices"
	"strings"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
)

// answer is who lets the kernel send, by the traced downloads, and what
// that is worth over TCP.
func answer(res *record.Result, trace record.Table) string {
	used := map[string][]string{}
	var copied []string
	for _, row := range trace.Rows {
		arm, socket, calls := row[0], row[1], row[2]
		switch {
		case calls != "0":
			used[socket] = append(used[socket], arm)
		case socket == "TCP":
			copied = append(copied, arm)
		}
	}
	var parts []string
	for _, socket := range []string{"TCP", "UNIX"} {
		if !slices.ContainsFunc(trace.Rows, func(row []string) bool { return row[1] == socket }) {
			continue
		}
		who := "nobody"
		if len(used[socket]) > 0 {
			who = experiment.List(used[socket])
		}
		parts = append(parts, fmt.Sprintf("over %s sendfile is used by %s", socket, who))
	}
	rate := func(arm string) float64 { return experiment.MedianOf(res, arm, "tcp", "bytes_per_second") / 1e9 }
	if with := rate("ServeFile"); with > 0 {
		s := fmt.Sprintf("ServeFile sends %.2f GB/s over TCP", with)
		if len(copied) > 0 && rate(copied[0]) > 0 {
			s += fmt.Sprintf(", %s, which copies, %.2f GB/s", copied[0], rate(copied[0]))
		}
		parts = append(parts, s)
	}
	return experiment.Capital(strings.Join(parts, "; "))
}
