package embed

import (
	"fmt"
	"strings"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
)

// answer is one sentence about the published doubt: are files embedded by go:embed
// served faster than from disk, or is sendfile faster than any program? The first
// half is about requests/s, as published, the second about CPU time. series are the
// lines of the curve; nil: it was not measured.
func answer(res *record.Result, series []record.Series) string {
	var parts []string
	for _, part := range []string{embeddedOrDisk(res, series), programOrSendfile(res)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

// embeddedOrDisk holds net/http from the executable against net/http on a folder.
func embeddedOrDisk(res *record.Result, series []record.Series) string {
	const metric = "requests_per_second"
	page, onPage := experiment.VerdictOn(res, embeddedArm, base, onePage, metric)
	all, onAll := experiment.VerdictOn(res, embeddedArm, base, allPaths, metric)
	if !onPage || !onAll {
		return ""
	}
	claimed := func(workload string) string {
		of := claims()[workload]
		return "claimed " + experiment.Change(of[embeddedArm]/of[base])
	}
	figures := fmt.Sprintf("requests/s %s on one page (%s) and %s on all seven paths (%s)",
		experiment.Difference(page), claimed(onePage), experiment.Difference(all), claimed(allPaths))
	from, crosses := diskFrom(series)
	switch {
	case page.Outcome != record.Better || all.Outcome != record.Better:
		return "net/http with go:embed against net/http on disk: " + figures
	case crosses:
		return fmt.Sprintf("net/http serves files of up to about %s faster from go:embed than from disk (%s), and larger ones cost less from disk, "+
			"where the kernel sends them (sendfile)", roughly(from), figures)
	}
	return "net/http serves these files faster from go:embed than from disk (" + figures + ")"
}

// diskFrom is the size in bytes from which on a file on disk costs less CPU time
// than an embedded one, if there is one from which on that stays so.
func diskFrom(series []record.Series) (size float64, ok bool) {
	found, _ := stretches(series, base, embeddedArm)
	if len(found) < 2 || found[len(found)-1].arm != base {
		return 0, false
	}
	return found[len(found)-1].from, true
}

// programOrSendfile holds nginx, which sends every file by sendfile, against millrace.
func programOrSendfile(res *record.Result) string {
	v, ok := experiment.VerdictOn(res, "millrace-disk", "nginx", onePage, "cpu_ns")
	if !ok {
		return ""
	}
	cpu := func(arm string) string {
		return experiment.Duration(experiment.MedianOf(res, arm, onePage, "cpu_ns"))
	}
	figures := fmt.Sprintf("nginx spends %s of CPU on the page, Millrace %s (%s)", cpu("nginx"), cpu("millrace-disk"), experiment.Difference(v))
	if _, ok := experiment.VerdictOn(res, packedArm, "millrace-disk", onePage, "cpu_ns"); ok {
		figures += " and, packed into one executable, " + cpu(packedArm)
	}
	switch v.Outcome {
	case record.Better:
		return "yet sendfile is not faster than every program: " + figures
	case record.Worse:
		return "sendfile is faster than every program here: " + figures
	case record.Equal, record.Undecided:
	}
	return figures
}
