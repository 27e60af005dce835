package embed

import (
	"fmt"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/result"
)

// answer is about one page, in CPU time per request, the harder figure.
func answer(res *result.Result) string {
	const page, embedded = "one page", "nethttp-embed"
	cpu := func(arm string) float64 { return experiment.MedianOf(res, arm, page, "cpu_ns") }
	var parts []string
	if v, ok := experiment.VerdictOn(res, embedded, base, page, "cpu_ns"); ok {
		s := fmt.Sprintf("net/http spends %s of CPU on a page from the executable and %s on one from disk (%s",
			experiment.Duration(cpu(embedded)), experiment.Duration(cpu(base)), experiment.Difference(v))
		if rate, ok := experiment.VerdictOn(res, embedded, base, page, "requests_per_second"); ok {
			s += fmt.Sprintf("; requests/s: %s, claimed +39.5 %%", experiment.Difference(rate))
		}
		parts = append(parts, s+")")
	}
	if disk, embed := cpu("millrace-disk"), cpu("millrace-embed"); disk > 0 {
		s := fmt.Sprintf("millrace from disk spends %s", experiment.Duration(disk))
		if nginx := cpu("nginx"); nginx > 0 {
			s += fmt.Sprintf(" and nginx %s", experiment.Duration(nginx))
		}
		if v, ok := experiment.VerdictOn(res, packedArm, "millrace-disk", page, "cpu_ns"); ok {
			s += fmt.Sprintf(", and the same site packed into its executable %s (%s)", experiment.Duration(cpu(packedArm)), experiment.Difference(v))
		}
		if least := cpu(embedded); least > 0 && disk < least && (embed == 0 || disk < embed) {
			s += ": less than net/http from its executable, so it is the way of serving that matters, not the place of the bytes"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}
