package gate

import (
	"cmp"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"millrace/lab/load"
	"millrace/lab/record"
)

// Answers is what arms answered: by arm, then by workload.
type Answers map[string]map[string][]load.Answer

// freeHeaders are those in which servers may differ and still do the same work
// for the reader of the body. That they differ is shown, not failed. True stands
// for those whose value never is the same twice: only their absence is shown.
func freeHeaders() map[string]bool {
	return map[string]bool{
		// who answers, and when
		"Date": true, "Server": true, "Via": true, "X-Request-Id": true, "X-Powered-By": true,
		// validators and what caches may do
		"Etag": false, "Last-Modified": false, "Cache-Control": false, "Expires": false, "Vary": false,
		"Age": true, "Cache-Status": true, "X-Cache": true, "X-Varnish": true,
		// the connection and the frame of the body; its bytes are compared themselves
		"Connection": false, "Keep-Alive": false, "Alt-Svc": false, "Accept-Ranges": false,
		"Content-Length": false, "Transfer-Encoding": false, "Trailer": false,
		// forbids browsers to guess, as servers without it would have them do
		"X-Content-Type-Options": false,
	}
}

// mediaTypes that mean the same under two names (RFC 9239, 6; RFC 7303, 9; and
// the registration of image/vnd.microsoft.icon), as servers still use both.
func sameType(mediaType string) string {
	switch mediaType {
	case "application/javascript", "application/x-javascript":
		return "text/javascript"
	case "application/xml":
		return "text/xml"
	case "image/x-icon":
		return "image/vnd.microsoft.icon"
	}
	return mediaType
}

// Same compares the answers of all arms on each workload: status, length and hash
// of the body, Content-Encoding and media type must be equal, and so must every
// header but those in which servers legitimately differ; these, parameters of
// the media type and the bytes each arm sends are shown. differ says by workload
// why answers need not be equal, and under "" for all workloads; then differences
// are shown and none fails.
func Same(answers Answers, differ map[string]string) record.Gate {
	gate := record.Gate{Name: nameSame, Limit: "status, body, encoding and headers equal between arms, but for those that are the server's own affair"}
	for _, workload := range slices.Sorted(maps.Keys(differ)) {
		gate.Limit += "; answers may differ" + on(workload) + ": " + differ[workload]
	}
	c := comparison{free: freeHeaders(), shown: map[string]map[string]bool{}}
	var excused []string
	for _, workload := range workloadsOf(answers) {
		c.workload(workload, answers)
		if differ[""] != "" || differ[workload] != "" {
			excused = append(excused, c.different[c.judged:]...)
			c.different = c.different[:c.judged]
		}
		c.judged = len(c.different)
	}
	var detail []string
	if len(excused) > 0 {
		detail = append(detail, "as expected: "+list(excused, "; "))
	}
	switch {
	case len(c.different) > 0:
		gate.Status = record.Failed
		detail = append(detail, list(c.different, "; "))
	case len(c.missing) > 0:
		gate.Status = record.Unknown
	case len(excused) > 0:
		gate.Status = record.Passed
	case c.compared == 0:
		gate.Status = record.Unknown
		detail = append(detail, "there are no two arms whose answers could be compared")
	default:
		gate.Status = record.Passed
		detail = append(detail, fmt.Sprintf("%d answers compared", c.compared))
	}
	if len(c.missing) > 0 {
		detail = append(detail, list(c.missing, "; "))
	}
	if shown := c.showHeaders(); shown != "" {
		detail = append(detail, "headers that may differ, and do: "+shown)
	}
	if len(c.varying) > 0 {
		detail = append(detail, "not compared, since they are others each time: the bodies of "+list(c.varying, ", "))
	}
	if len(c.bytes) > 0 {
		detail = append(detail, "bytes an answer: "+list(c.bytes, "; "))
	}
	gate.Detail = strings.Join(detail, ". ")
	return gate
}

func workloadsOf(answers Answers) []string {
	names := map[string]bool{}
	for _, byWorkload := range answers {
		for w := range byWorkload {
			names[w] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// comparison is what Same has found so far.
type comparison struct {
	free      map[string]bool
	compared  int
	different []string
	judged    int // of different: those of the workloads before
	missing   []string
	shown     map[string]map[string]bool // by free header: arms without it; "" where values differ
	bytes     []string
	varying   []string // paths whose bodies are others each time
}

// workload compares the arms that have answers on it. With a single arm there is
// nothing to compare.
func (c *comparison) workload(name string, answers Answers) {
	var arms, paths []string
	byPath := map[string]map[string]load.Answer{} // path → arm
	for _, arm := range slices.Sorted(maps.Keys(answers)) {
		given, takesPart := answers[arm][name]
		if !takesPart {
			continue
		}
		arms = append(arms, arm)
		for _, a := range given {
			if byPath[a.Path] == nil {
				byPath[a.Path] = map[string]load.Answer{}
				paths = append(paths, a.Path)
			}
			if _, twice := byPath[a.Path][arm]; !twice && a.Status != 0 {
				byPath[a.Path][arm] = a
			}
		}
	}
	if len(arms) < 2 {
		return
	}
	for _, path := range paths {
		c.path(cmp.Or(path, "/"), name, arms, byPath[path])
	}
	if len(paths) == 0 {
		c.missing = append(c.missing, "no answers on "+name)
	}
	if line := meanBytes(arms, paths, byPath); line != "" {
		c.bytes = append(c.bytes, strings.TrimPrefix(name+": ", ": ")+line)
	}
}

// path compares what the arms answered on one path.
func (c *comparison) path(path, workload string, arms []string, given map[string]load.Answer) {
	where := path
	if workload != "" {
		where += " (" + workload + ")"
	}
	var absent []string
	present := slices.DeleteFunc(slices.Clone(arms), func(arm string) bool {
		_, ok := given[arm]
		if !ok {
			absent = append(absent, arm)
		}
		return !ok
	})
	if len(absent) > 0 {
		c.missing = append(c.missing, fmt.Sprintf("%s: no answer from %s", where, list(absent, ", ")))
	}
	if len(present) < 2 {
		return
	}
	c.compared += len(present)
	property := func(what string, of func(load.Answer) string) bool {
		text, same := split(present, func(arm string) string { return of(given[arm]) })
		if !same {
			c.different = append(c.different, where+": "+what+" "+text)
		}
		return same
	}
	if !property("status", func(a load.Answer) string { return fmt.Sprint(a.Status) }) {
		return // other bodies and headers only follow from that
	}
	varies := slices.ContainsFunc(present, func(arm string) bool { return given[arm].Varies })
	if varies {
		c.varying = append(c.varying, where)
	} else {
		property("body of", func(a load.Answer) string { return fmt.Sprintf("%d bytes, hash %016x,", a.Length, a.Hash) })
	}
	property("Content-Encoding", func(a load.Answer) string { return lower(a.Head.Get("Content-Encoding"), "identity") })
	property("Content-Type", func(a load.Answer) string { t, _ := contentType(a.Head); return t })
	if _, same := split(present, func(arm string) string { _, whole := contentType(given[arm].Head); return whole }); !same {
		c.show("Content-Type (its parameters, or another name of one type)", "")
	}
	for _, name := range headersOf(present, given) {
		c.header(name, present, given, varies, property)
	}
}

// header compares one header that is not the body's own: of answers that vary, whether
// it is there.
func (c *comparison) header(name string, arms []string, given map[string]load.Answer, varies bool, property func(string, func(load.Answer) string) bool) {
	value := func(a load.Answer) string {
		values, ok := a.Head[name]
		if !ok {
			return "none"
		}
		if varies {
			return "some value"
		}
		return fmt.Sprintf("%.60q", strings.Join(values, ", "))
	}
	fickle, free := c.free[name]
	if !free {
		property(name, value)
		return
	}
	for _, arm := range arms {
		if _, ok := given[arm].Head[name]; !ok {
			c.show(name, arm)
		}
	}
	if _, same := split(arms, func(arm string) string { return value(given[arm]) }); !same && !fickle {
		c.show(name, "")
	}
}

// show notes a header that differs: for an arm that lacks it, or in its value.
func (c *comparison) show(name, arm string) {
	if c.shown[name] == nil {
		c.shown[name] = map[string]bool{}
	}
	c.shown[name][arm] = true
}

// showHeaders lists all of them (there are no more than free ones).
func (c *comparison) showHeaders() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.shown)) {
		arms := slices.Sorted(maps.Keys(c.shown[name]))
		arms = slices.DeleteFunc(arms, func(arm string) bool { return arm == "" })
		if len(arms) > 0 {
			name += " (not from " + list(arms, ", ") + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// headersOf is every header of some answers but those that have rules of their
// own.
func headersOf(arms []string, given map[string]load.Answer) []string {
	names := map[string]bool{}
	for _, arm := range arms {
		for name := range given[arm].Head {
			names[name] = true
		}
	}
	delete(names, "Content-Type")
	delete(names, "Content-Encoding")
	return slices.Sorted(maps.Keys(names))
}

// split says which arms have which value: "200 from a, b, 404 from c".
func split(arms []string, value func(arm string) string) (text string, same bool) {
	var order []string
	having := map[string][]string{}
	for _, arm := range arms {
		v := value(arm)
		if having[v] == nil {
			order = append(order, v)
		}
		having[v] = append(having[v], arm)
	}
	parts := make([]string, len(order))
	for i, v := range order {
		parts[i] = v + " from " + list(having[v], ", ")
	}
	return list(parts, ", "), len(order) < 2
}

// contentType is the media type, by the one name that we have for it, and all of
// the header in one spelling.
func contentType(head http.Header) (mediaType, whole string) {
	raw := head.Get("Content-Type")
	if raw == "" {
		return "none", ""
	}
	t, p, err := mime.ParseMediaType(raw)
	if err != nil {
		var parameters string
		t, parameters, _ = strings.Cut(raw, ";")
		t = strings.ToLower(strings.TrimSpace(t))
		return sameType(t), t + ";" + parameters
	}
	return sameType(t), mime.FormatMediaType(t, p)
}

func lower(value, missing string) string {
	return cmp.Or(strings.ToLower(strings.TrimSpace(value)), missing)
}

// meanBytes is how much each arm sends for an answer, head and body; empty where
// the protocol hides it.
func meanBytes(arms, paths []string, byPath map[string]map[string]load.Answer) string {
	size := map[string]string{}
	for _, arm := range arms {
		bytes, n := 0, 0
		for _, path := range paths {
			if a, ok := byPath[path][arm]; ok && a.Bytes > 0 {
				bytes += a.Bytes
				n++
			}
		}
		if n == 0 {
			size[arm] = "unknown"
		} else {
			size[arm] = fmt.Sprint(bytes / n)
		}
	}
	text, same := split(arms, func(arm string) string { return size[arm] })
	if same {
		if size[arms[0]] == "unknown" {
			return ""
		}
		return size[arms[0]] + " from all"
	}
	return text
}
