package lane

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"millrace/internal/wire/message"
	"millrace/internal/wire/send"
)

// offerer offers answers as a job does.
type offerer struct {
	*bench
	t    *testing.T
	conn *Conn
}

func newOfferer(t *testing.T) *offerer {
	b := newBench(t, patient)
	t.Cleanup(b.lane.Close)
	server, _ := socketPair(t)
	c, _ := FromNet(b.lane.NewConn(server, b.scope, nil))
	t.Cleanup(func() { _ = c.Close() })
	return &offerer{b, t, c}
}

// offer reports whether an answer to a request for target is taken.
func (o *offerer) offer(site uint64, r *http.Request, a *send.Answer, rule Rule) bool {
	o.t.Helper()
	r = r.WithContext(WithConn(o.t.Context(), o.conn))
	before := o.meters.LaneOffers.Load()
	Begin(r)
	SetJob(r, site, o.meters.Job("test"))
	Offer(r, a, rule)
	return o.meters.LaneOffers.Load() > before
}

func asked(method, target string, h http.Header) *http.Request {
	return &http.Request{Method: method, RequestURI: target, Host: "a", Header: h}
}

// Offers that no request could ever find, or that cannot be honoured, are declined.
func TestOfferDeclines(t *testing.T) {
	o := newOfferer(t)
	var gen Generation
	void := gen.Now()
	gen.Invalidate()
	none := func(b []byte, _ int64) []byte { return b }
	with := func(name string, values ...string) *send.Answer {
		a := answerOf("x")
		a.Header[name] = values
		return a
	}
	status := func(code int) *send.Answer {
		a := answerOf("x")
		a.Status = code
		return a
	}
	noLength, noContent := answerOf("x"), status(204)
	delete(noLength.Header, "Content-Length")
	noContent.Header, noContent.Body, noContent.Size = http.Header{}, nil, 0
	virtual := answerOf("x")
	virtual.Body, virtual.File = nil, send.NewReaderAt(strings.NewReader("x"), nil)
	varying := func(names ...string) Rule { return Rule{VaryOn: names} }
	type header = http.Header
	for name, c := range map[string]struct {
		method, target string
		headers        http.Header
		answer         *send.Answer
		rule           Rule
		taken          bool
	}{
		"plain":               {taken: true},
		"HEAD":                {method: "HEAD", taken: true},
		"POST":                {method: "POST"},
		"query":               {target: "/q?a=%20", rule: Rule{WithQuery: true}, taken: true},
		"percent":             {target: "/%61"},
		"needed percent":      {target: "/%20", taken: true},
		"percent, with query": {target: "/%61?a", rule: Rule{WithQuery: true}},
		"absolute":            {target: "http://a/c"},
		"non-ASCII query":     {target: "/q?\xc3", rule: Rule{WithQuery: true}},
		"too long":            {target: "/" + strings.Repeat("x", maxHead)},
		"void":                {rule: Rule{Version: void}},
		"also void":           {rule: Rule{Version: gen.Now(), Also: void}},
		"valid versions":      {rule: Rule{Version: gen.Now(), Also: gen.Now()}, taken: true},
		"too large":           {answer: answerOf(strings.Repeat("x", DefaultMemory/maxShare))},

		"cookie":            {headers: header{"Cookie": {"a"}}, rule: varying("Cookie")},
		"no cookie":         {rule: varying("Cookie"), taken: true},
		"credentials":       {headers: header{"Authorization": {"a"}}, rule: varying("Authorization")},
		"ignored cookie":    {headers: header{"Cookie": {"a"}}, taken: true},
		"two values":        {headers: header{"Origin": {"a", "b"}}, rule: varying("Origin")},
		"empty value":       {headers: header{"Origin": {""}}, rule: varying("Origin")},
		"weights":           {headers: header{"Accept-Encoding": {"br;q=1"}}, rule: varying("Accept-Encoding"), taken: true},
		"two of codings":    {headers: header{"Accept-Encoding": {"br", "gzip"}}, rule: varying("Accept-Encoding")},
		"two negotiated":    {headers: header{"Accept-Encoding": {"br", "gzip"}}, rule: Rule{VaryOn: []string{"accept-encoding"}, Negotiated: true}, taken: true},
		"vary on framing":   {rule: varying("Connection")},
		"harmless header":   {headers: header{"Dnt": {"1"}}, rule: varying("Dnt")},
		"no harmless one":   {rule: varying("Sec-CH-Width", "DNT"), taken: true},
		"no range":          {rule: varying("Range"), taken: true},
		"vary on trailers":  {rule: varying("TE")},
		"no token":          {rule: varying("X Unknown")},
		"unknown header":    {headers: header{"X-Unknown": {"a"}}, rule: varying("X-Unknown")},
		"no unknown header": {rule: varying("X-Unknown"), taken: true},
		"everything":        {rule: varying("*")},
		"too many": {rule: varying("Accept", "Accept-Language", "Authorization", "Cookie", "Origin", "Referer", "User-Agent",
			"Save-Data", "DPR", "Width", "Viewport-Width", "Cache-Control", "Pragma", "Forwarded")},
		"one twice": {rule: varying("Accept", "Accept-Language", "Authorization", "Cookie", "Origin", "Referer", "User-Agent",
			"Save-Data", "DPR", "Width", "Viewport-Width", "Cache-Control", "cache-control", "Accept-Encoding"), taken: true},
		"Vary not in rule":        {answer: with("Vary", "Accept-Encoding, Origin"), rule: varying("Accept-Encoding")},
		"Vary not consulted, too": {answer: with("Vary", "Origin", "accept"), rule: varying("Origin")},
		"Vary in rule":            {answer: with("Vary", "accept-encoding,Origin", "Accept"), rule: varying("Accept-Encoding", "origin", "Accept"), taken: true},
		"Vary: *":                 {answer: with("Vary", "*")},
		"Content-Encoding": {
			headers: header{"Accept-Encoding": {"br"}}, answer: with("Content-Encoding", "br"), rule: varying("Accept-Encoding"), taken: true,
		},

		"Set-Cookie":            {answer: with("Set-Cookie", "a=b")},
		"Connection":            {answer: with("Connection", "close")},
		"Date":                  {answer: with("Date", "x")},
		"Date and Lines":        {answer: with("Date", "x"), rule: Rule{Lines: none}, taken: true},
		"two Dates":             {answer: with("Date", "x", "y"), rule: Rule{Lines: none}},
		"Lines without Date":    {rule: Rule{Lines: none}},
		"Server":                {answer: with("Server", "x"), taken: true},
		"a line break":          {answer: with("X-A", "b\r\nX-C: d")},
		"a carriage return":     {answer: with("X-A", "b\rc")},
		"NUL":                   {answer: with("X-A", "\x00")},
		"a space at the end":    {answer: with("X-A", "b ")},
		"a tab, and not ASCII":  {answer: with("X-A", "b\tä"), taken: true},
		"a space in a name":     {answer: with("X A", "b")},
		"a line break in one":   {answer: with("X-A\r\nX-B", "b")},
		"a colon in one":        {answer: with("X:a", "b")},
		"a name in lower case":  {answer: with("x-a", "b")},
		"no name":               {answer: with("", "b")},
		"no length":             {answer: noLength},
		"another length":        {answer: with("Content-Length", "2")},
		"a length with a sign":  {answer: with("Content-Length", "+1")},
		"two lengths":           {answer: with("Content-Length", "1", "1")},
		"another size":          {answer: &send.Answer{Header: header{"Content-Length": {"2"}}, Body: []byte("x"), Size: 2}},
		"no descriptor":         {answer: virtual},
		"404":                   {answer: status(404), taken: true},
		"301":                   {answer: status(301), taken: true},
		"an unheard-of one":     {answer: status(599), taken: true},
		"204":                   {answer: noContent, taken: true},
		"204 with a length":     {answer: status(204)},
		"a part":                {answer: status(206)},
		"not modified":          {answer: status(304)},
		"a condition that fell": {answer: status(412)},
		"no such range":         {answer: status(416)},
		"no final status":       {answer: status(103)},
		"no status":             {answer: status(600)},
	} {
		if c.method == "" {
			c.method = "GET"
		}
		if c.target == "" {
			c.target = "/" + strings.Map(func(r rune) rune {
				if message.Class[byte(r)]&message.PathByte == 0 {
					return '-'
				}
				return r
			}, name)
		}
		if c.answer == nil {
			c.answer = answerOf(name)
		}
		r := asked(c.method, c.target, c.headers)
		if taken := o.offer(1, r, c.answer, c.rule); taken != c.taken {
			t.Errorf("%s: taken %t", name, taken)
		}
		if o.offer(1, r, c.answer, c.rule) {
			t.Errorf("%s: taken again, though it is held", name)
		}
		if o.offer(0, r, answerOf(name+"!"), c.rule) {
			t.Errorf("%s: taken for no site", name)
		}
	}
	Offer(&http.Request{}, answerOf("x"), Rule{}) // no lane: nothing happens
}

// One path has many spellings and queries: none of them may fill the table.
func TestQueriesCannotFlush(t *testing.T) {
	o := newOfferer(t)
	for i := range 100 {
		for _, target := range []string{fmt.Sprint("/x?", i), fmt.Sprintf("/%%%02X", 'A'+i%26), fmt.Sprintf("/%%c3%%%02x", 0x80+i%64)} {
			o.offer(1, asked("GET", target, nil), answerOf("x"), Rule{})
		}
	}
	if n := o.meters.LaneEntries.Load(); n != 2 { // "/" and "/x"
		t.Errorf("%d entries", n)
	}
}

// What changes by the second is made once for each, and both statuses have it.
func TestLinesOncePerSecond(t *testing.T) {
	calls := 0
	a := answerOf("body")
	a.Header["Date"] = []string{"Sun, 06 Nov 1994 08:49:37 GMT"}
	a.Header["Zebra"] = []string{"z"}
	r := newResponse(a, Rule{Lines: func(b []byte, now int64) []byte {
		calls++
		return fmt.Appendf(b, "Age: %d\r\n", now-100)
	}}, nil)
	const head = "Content-Length: 4\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nEtag: \"t\"\r\nServer: millrace\r\nZebra: z\r\n"
	for second := int64(105); second < 107; second++ {
		for range 3 {
			want := fmt.Sprintf("HTTP/1.1 200 OK\r\n%sAge: %d\r\n\r\nbody", head, second-100)
			if got := string(r.stamp(second).bytes); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			want = fmt.Sprintf("HTTP/1.1 304 Not Modified\r\n%sAge: %d\r\n\r\n", head[strings.Index(head, "Date"):], second-100)
			if got := string(r.stamp304(second).bytes); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
	if calls != 4 {
		t.Errorf("made %d times in two seconds, want 4", calls)
	}
	if got := string(r.stamp(105).withClose()); !strings.Contains(got, "Age: 5\r\nConnection: close\r\n\r\nbody") {
		t.Errorf("the last answer is %q", got)
	}
}

// A validator that package condition would not understand is net/http's to judge.
func TestOnlyWellFormedValidators(t *testing.T) {
	for tag, want := range map[string]bool{
		`"a"`: true, `""`: true, `W/"a"`: true, `"a,b"`: true, `"é"`: true,
		``: false, `a`: false, `"`: false, `W/`: false, `w/"a"`: false, `"a`: false, `a"`: false, `"a"b"`: false, `"a b"`: false, `*`: false, "\"\x7f\"": false,
	} {
		a := answerOf("x")
		a.ETag = tag
		if got := newResponse(a, Rule{}, nil).etag != ""; got != want {
			t.Errorf("%s: compared by the lane %t", tag, got)
		}
	}
}
