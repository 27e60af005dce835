package gate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"millrace/lab/load"
	"millrace/lab/record"
)

// answer is a page of 501 bytes with some headers, "Name: value" each.
func answer(path string, headers ...string) load.Answer {
	h := http.Header{"Content-Type": {"text/html; charset=utf-8"}, "Content-Length": {"501"}, "Date": {"Mon, 01 Jan 2024 00:00:00 GMT"}}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Set(name, value)
	}
	return load.Answer{Path: path, Status: 200, Length: 501, Hash: 42, Head: h, Bytes: 700}
}

func changed(a load.Answer, change func(*load.Answer)) load.Answer {
	change(&a)
	return a
}

// two makes the answers of two arms on one workload.
func two(a, b []load.Answer) Answers {
	return Answers{"a": {"w": a}, "b": {"w": b}}
}

func one(b load.Answer) Answers { return two([]load.Answer{answer("/")}, []load.Answer{b}) }

func TestSame(t *testing.T) {
	page := answer("/")
	for _, c := range []struct {
		name    string
		answers Answers
		differ  string
		want    record.GateStatus
		detail  string
	}{
		{"nothing", nil, "", record.Unknown, "no two arms"},
		{"one arm", Answers{"a": {"w": {page}}}, "", record.Unknown, "no two arms"},
		{"two arms that share no workload", Answers{"a": {"v": {page}}, "b": {"w": {page}}}, "", record.Unknown, "no two arms"},
		{"no answers", two(nil, nil), "", record.Unknown, "no answers on w"},
		{"equal", one(page), "", record.Passed, "2 answers compared. bytes an answer: w: 700 from all"},
		{"status", one(changed(page, func(a *load.Answer) { a.Status = 404 })), "", record.Failed, "/ (w): status 200 from a, 404 from b"},
		{"length", one(changed(page, func(a *load.Answer) { a.Length = 502 })), "", record.Failed, "501 bytes, hash 000000000000002a, from a, 502 bytes"},
		{"bodies that vary", one(changed(answer("/", "Set-Cookie: a=b"), func(a *load.Answer) { a.Hash, a.Varies = 43, true })), "", record.Failed, "Set-Cookie none from a, some value from b"},
		{"bodies and headers that vary", two([]load.Answer{answer("/", "Set-Cookie: a=c")}, []load.Answer{changed(answer("/", "Set-Cookie: a=b"), func(a *load.Answer) { a.Hash, a.Varies = 43, true })}), "", record.Passed, "not compared, since they are others each time: the bodies of / (w)"},
		{"hash", one(changed(page, func(a *load.Answer) { a.Hash = 43 })), "", record.Failed, "hash 000000000000002b, from b"},
		{"encoding", one(answer("/", "Content-Encoding: gzip")), "", record.Failed, "Content-Encoding identity from a, gzip from b"},
		{"encoding in capitals", one(answer("/", "Content-Encoding: Identity")), "", record.Passed, ""},
		{"type", one(answer("/", "Content-Type: text/plain")), "", record.Failed, "Content-Type text/html from a, text/plain from b"},
		{"no type", one(answer("/", "Content-Type: ")), "", record.Failed, "none from b"},
		{"parameter of the type", one(answer("/", "Content-Type: text/html")), "", record.Passed, "and do: Content-Type (its parameters"},
		{"type in another spelling", one(answer("/", "Content-Type: Text/HTML;charset=utf-8")), "", record.Passed, "compared. bytes"},
		{"type that is malformed", one(answer("/", "Content-Type: text/html; a; b=;")), "", record.Passed, "Content-Type (its parameters"},
		{"another header", one(answer("/", "Set-Cookie: a=b")), "", record.Failed, `Set-Cookie none from a, "a=b" from b`},
		{"another header's value", two([]load.Answer{answer("/", "Content-Language: en")}, []load.Answer{answer("/", "Content-Language: de")}), "", record.Failed, `Content-Language "en" from a, "de" from b`},
		{"a server's own headers", one(answer("/", "Server: x", "ETag: 1", "Last-Modified: 2", "Vary: 3", "Cache-Control: 4", "Accept-Ranges: 5", "Connection: 6", "Keep-Alive: 7", "X-Content-Type-Options: nosniff")), "", record.Passed, "Accept-Ranges (not from a), Cache-Control (not from a), Connection (not from a), Etag (not from a)"},
		{"values of a server's own headers", two([]load.Answer{answer("/", "ETag: 1", "Server: x")}, []load.Answer{answer("/", "ETag: 2", "Server: y")}), "", record.Passed, "and do: Etag. bytes"},
		{"another date", one(answer("/", "Date: Tue, 02 Jan 2024 00:00:00 GMT")), "", record.Passed, "compared. bytes"},
		{"bytes", one(changed(page, func(a *load.Answer) { a.Bytes = 650 })), "", record.Passed, "w: 700 from a, 650 from b"},
		{"bytes unknown", two([]load.Answer{changed(page, func(a *load.Answer) { a.Bytes = 0 })}, []load.Answer{changed(page, func(a *load.Answer) { a.Bytes = 0 })}), "", record.Passed, "2 answers compared"},
		{"a path is missing", two([]load.Answer{page, answer("/x")}, []load.Answer{page}), "", record.Unknown, "/x (w): no answer from b"},
		{"a path was not asked for", two([]load.Answer{page}, []load.Answer{{Path: "/"}}), "", record.Unknown, "/ (w): no answer from b"},
		{"one path is missing, another differs", two([]load.Answer{page, answer("/x")}, []load.Answer{changed(page, func(a *load.Answer) { a.Hash++ })}), "", record.Failed, "body of"},
		{"differs, as was said", one(changed(page, func(a *load.Answer) { a.Status = 500 })), "caches answer from memory", record.Passed, "200 from a, 500 from b"},
		{"said to differ, without answers", nil, "caches", record.Unknown, "no two arms"},
	} {
		got := Same(c.answers, expected(c.differ))
		if got.Status != c.want || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: %s: %s; want %s: …%s…", c.name, got.Status, got.Detail, c.want, c.detail)
		}
		if got.Name != nameSame || got.Limit == "" || got.Detail == "" || !strings.Contains(got.Limit, c.differ) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// expected is the reason for all workloads.
func expected(reason string) map[string]string {
	if reason == "" {
		return nil
	}
	return map[string]string{"": reason}
}

// A reason for one workload excuses no other.
func TestSameByWorkload(t *testing.T) {
	answers := two([]load.Answer{answer("/")}, []load.Answer{changed(answer("/"), func(a *load.Answer) { a.Hash++ })})
	for workload, want := range map[string]record.GateStatus{"w": record.Passed, "other": record.Failed} {
		got := Same(answers, map[string]string{workload: "one of them compresses"})
		if got.Status != want || !strings.Contains(got.Limit, "one of them compresses") {
			t.Errorf("a reason for %s: %+v", workload, got)
		}
	}
}

func TestSameTypesUnderTwoNames(t *testing.T) {
	for _, types := range [][2]string{
		{"text/javascript; charset=utf-8", "application/javascript"},
		{"image/x-icon", "image/vnd.microsoft.icon"},
		{"text/xml", "application/xml"},
	} {
		a, b := answer("/", "Content-Type: "+types[0]), answer("/", "Content-Type: "+types[1])
		if got := Same(two([]load.Answer{a}, []load.Answer{b}), nil); got.Status != record.Passed || !strings.Contains(got.Detail, "another name of one type") {
			t.Errorf("%s and %s: %s: %s", types[0], types[1], got.Status, got.Detail)
		}
	}
}

// The odd arm out is named, not whoever comes first, and a long list is cut.
func TestSameNamesTheOddArmAndIsBounded(t *testing.T) {
	answers := Answers{}
	for i := range 8 {
		answers[fmt.Sprintf("arm%d", i)] = map[string][]load.Answer{"w": {answer("/")}}
	}
	answers["arm3"]["w"][0].Hash = 7
	got := Same(answers, nil)
	if !strings.Contains(got.Detail, "from arm0, arm1, arm2, arm4, arm5, and 2 more") || !strings.Contains(got.Detail, "hash 0000000000000007, from arm3") {
		t.Errorf("detail: %s", got.Detail)
	}
	var a, b []load.Answer
	for i := range 300 {
		a, b = append(a, answer(fmt.Sprint("/", i))), append(b, changed(answer(fmt.Sprint("/", i)), func(a *load.Answer) { a.Status = 404 }))
	}
	if got := Same(two(a, b), nil); got.Status != record.Failed || !strings.Contains(got.Detail, "and 295 more") {
		t.Errorf("300 differences: %.1000s", got.Detail)
	}
}
