package params

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/images/convert"
)

const secret = "0123456789abcdef0123"

// listed are options with something on every list.
func listed() Options {
	return Options{
		Widths:    []int{600, 300, 1200},
		Heights:   []int{200, 400},
		Fits:      []convert.Fit{convert.Cover, convert.Fill},
		Qualities: []int{70, 40},
		DPRs:      []float64{1.5, 2, 2.625},
		Presets: map[string]Preset{
			"thumb": {Width: 120, Height: 80, Fit: convert.Cover, Quality: 60},
			"wide":  {Width: 1601},
		},
	}
}

func signing() Options {
	o := listed()
	o.Secret = secret
	return o
}

func parse(o Options, target string) (Params, error) {
	return o.Parse(httptest.NewRequest("GET", target, nil))
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		query string
		want  Params
	}{
		{"", Params{}},
		{"?", Params{}},
		{"?utm_source=x&W=7&wh=3&s=junk&%77=5", Params{}},
		{"?w=300", Params{Width: 300, Height: 0, Fit: convert.Contain, Quality: 0}},
		{"?w=300&utm_source=x&w2=5", Params{Width: 300, Height: 0, Fit: convert.Contain, Quality: 0}},
		{"?h=200&w=300", Params{Width: 300, Height: 200, Fit: convert.Contain, Quality: 0}},
		{"?w=300&h=200&fit=cover", Params{Width: 300, Height: 200, Fit: convert.Cover, Quality: 0}},
		{"?w=300&h=200&fit=contain", Params{Width: 300, Height: 200, Fit: convert.Contain, Quality: 0}}, // not listed: what is done anyway
		{"?w=300&fit=cover", Params{Width: 300, Height: 0, Fit: convert.Contain, Quality: 0}},
		{"?fit=cover", Params{}},
		{"?q=70", Params{Width: 0, Height: 0, Fit: "", Quality: 70}},
		{"?q=40&h=400", Params{Width: 0, Height: 400, Fit: convert.Contain, Quality: 40}},
		{"?w=300&dpr=2", Params{Width: 600, Height: 0, Fit: convert.Contain, Quality: 0}},
		{"?w=300&dpr=2.000", Params{Width: 600, Height: 0, Fit: convert.Contain, Quality: 0}},
		{"?w=300&dpr=1", Params{Width: 300, Height: 0, Fit: convert.Contain, Quality: 0}},
		{"?w=300&h=200&dpr=1.5", Params{Width: 450, Height: 300, Fit: convert.Contain, Quality: 0}},
		{"?w=300&dpr=2.625", Params{Width: 788, Height: 0, Fit: convert.Contain, Quality: 0}}, // 787.5
		{"?dpr=2", Params{}},
		{"?preset=thumb", Params{Width: 120, Height: 80, Fit: convert.Cover, Quality: 60}},
		{"?dpr=2&preset=thumb", Params{Width: 240, Height: 160, Fit: convert.Cover, Quality: 60}},
		{"?preset=wide", Params{Width: 1601, Height: 0, Fit: convert.Contain, Quality: 0}},
	} {
		got, err := parse(listed(), "/a.jpg"+c.query)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.query, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, query := range []string{
		"w=301", "w=0", "w=-300", "w=+300", "w=0300", "w=300.0", "w=3e2", "w=300px", "w=", "w", "w=%20300", "w=%33%30%30",
		"w=99999999999999999999999", "w=300;h=200", "w=300,600",
		"w=300&w=300", "w=300&w=600", "w=300&h=200&h=200", "fit=cover&fit=fill&w=300", "preset=thumb&preset=thumb",
		"h=300", "h=x", "q=0", "q=80", "q=101", "q=", "fit=outside", "fit=Cover", "fit=", "fit=zoom",
		"dpr=3", "dpr=0", "dpr=0.5", "dpr=2x", "dpr=2.", "dpr=.5", "dpr=", "dpr=02", "dpr=2.6250", "dpr=NaN", "dpr=-2", "dpr=1e0",
		"preset=", "preset=Thumb", "preset=nope", "preset=thumb&w=300", "preset=thumb&fit=cover", "q=70&preset=wide",
	} {
		got, err := parse(listed(), "/a.jpg?"+query)
		if !errors.Is(err, ErrRefused) || got != (Params{}) {
			t.Errorf("%s: %+v, %v", query, got, err)
		}
	}
	_, err := parse(listed(), "/a.jpg?w=301%00"+strings.Repeat("9", 500))
	want := `this size is not allowed: w="301%00999999999999999999` + `…"`
	if err == nil || !strings.HasPrefix(err.Error(), want[:40]) || len(err.Error()) > 300 {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"w=300|600|1200", "h=200|400", "q=40|70", "fit=cover|fill", "dpr=1.5|2|2.625", "preset=thumb|wide"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %s", err, part)
		}
	}
	if _, err := parse(Options{Qualities: []int{50}}, "/a.jpg?w=300"); err == nil || !strings.HasSuffix(err.Error(), "allowed: q=50") {
		t.Errorf("%v", err)
	}
}

func TestDisabled(t *testing.T) {
	for _, o := range []Options{{}, {Fits: []convert.Fit{convert.Cover}}, {DPRs: []float64{2}}} {
		if o.Enabled() {
			t.Errorf("%+v enables something", o)
		}
		if p, err := parse(o, "/a.jpg?w=7&w=8&fit=x&s=y"); err != nil || p != (Params{}) {
			t.Errorf("%+v, %v: queries are not looked at", p, err)
		}
	}
	for _, o := range []Options{{Widths: []int{1}}, {Heights: []int{1}}, {Qualities: []int{1}}, {Presets: map[string]Preset{"a": {}}}, {Secret: "x"}, {ClientHints: true}} {
		if !o.Enabled() {
			t.Errorf("%+v enables nothing", o)
		}
	}
}

func TestKey(t *testing.T) {
	for want, p := range map[string]Params{
		"":                  {},
		"w300":              {Width: 300, Height: 0, Fit: convert.Contain, Quality: 0},
		"h300":              {Width: 0, Height: 300, Fit: convert.Contain, Quality: 0},
		"q70":               {Quality: 70},
		"w1-h2-q3":          {Width: 1, Height: 2, Fit: convert.Contain, Quality: 3},
		"w1-h2-q3-fcover":   {Width: 1, Height: 2, Fit: convert.Cover, Quality: 3},
		"w1-h2-foutside":    {Width: 1, Height: 2, Fit: convert.Outside, Quality: 0},
		"w16384-h16384-q99": {Width: 16384, Height: 16384, Fit: "", Quality: 99},
	} {
		if got := p.Key(); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}

func TestSigned(t *testing.T) {
	for target, want := range map[string]Params{
		"/a.jpg?w=301":                         {Width: 301, Height: 0, Fit: convert.Contain, Quality: 0},
		"/a.jpg?w=16384&h=1&q=100&fit=outside": {Width: 16384, Height: 1, Fit: convert.Outside, Quality: 100},
		"/a.jpg?w=100&dpr=3.75":                {Width: 375, Height: 0, Fit: convert.Contain, Quality: 0},
		"/a.jpg?w=300&utm_source=x":            {Width: 300, Height: 0, Fit: convert.Contain, Quality: 0},
		"/a.jpg":                               {},
		"/a.jpg?":                              {},
		"/a%20b.jpg?w=77":                      {Width: 77, Height: 0, Fit: convert.Contain, Quality: 0},
		"/größe – 100%.jpg?w=77&x=it's \"<\\`|^{}": {Width: 77, Height: 0, Fit: convert.Contain, Quality: 0},
		"/a%2fb%C3%bc.jpg?w=77&x=a?b=c#d":          {Width: 77, Height: 0, Fit: convert.Contain, Quality: 0},
		"a.jpg?preset=thumb":                       {Width: 120, Height: 80, Fit: convert.Cover, Quality: 60},
	} {
		signed := Sign(secret, target)
		got, err := parse(signing(), signed)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", signed, got, err, want)
		}
		if Sign(secret, target) != signed || Sign(secret+"x", target) == signed {
			t.Errorf("%s: not a function of its input", target)
		}
		// Whatever is changed about it, it is not signed any more.
		i := strings.LastIndex(signed, "s=") + 2
		for _, forged := range []string{
			signed[:i] + strings.ToUpper(signed[i:]), signed[:len(signed)-1], signed + "0", signed[:i], signed + "&w=5",
			signed + "&utm_source=x", signed + "&" + signed[i-2:], "/x" + signed, strings.Replace(signed, "?", "?x&", 1), strings.Replace(signed, "?", "?s=1&", 1),
			Sign("another secret of some length", target),
		} {
			if forged == signed { // a signature without letters
				continue
			}
			if got, err := parse(signing(), forged); !errors.Is(err, ErrRefused) {
				t.Errorf("%s (from %s): %+v, %v", forged, signed, got, err)
			}
		}
	}
}

// The recipe in the comment of Sign.
func TestSignIsWhatOpenSSLSays(t *testing.T) {
	const want = "/a.jpg?w=300&s=a2c517a315b033f9d45e4e681d622aef"
	if got := Sign(secret, "/a.jpg?w=300"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSignedBounds(t *testing.T) {
	for _, query := range []string{
		"w=16385", "h=16385", "w=0", "h=-1", "q=101", "q=0", "dpr=4.001", "dpr=0.999", "dpr=9", "fit=zoom", "w=16384&dpr=2",
		"preset=none", "preset=thumb&w=5", "w=5&w=6",
	} {
		if got, err := parse(signing(), Sign(secret, "/a.jpg?"+query)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %+v, %v", query, got, err)
		}
	}
	if p, err := parse(signing(), "/a.jpg?w=300"); err != nil || p.Width != 300 {
		t.Errorf("what is listed needs no signature: %+v, %v", p, err)
	}
	if _, err := parse(signing(), "/a.jpg?w=301"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "with a signature") {
		t.Errorf("%v", err)
	}
	if p, err := parse(listed(), "/a.jpg?s=1&w=300&s=2"); err != nil || p.Width != 300 {
		t.Errorf("without a secret s is nothing: %+v, %v", p, err)
	}
	if _, err := parse(signing(), "/a.jpg?w=300&s=0123"); !errors.Is(err, ErrRefused) {
		t.Errorf("a wrong signature, even of what is allowed, is somebody's mistake: %v", err)
	}
}

// A router may cut off a part of the path; the signature holds for what the
// client sent.
func TestSignedBelowAPrefix(t *testing.T) {
	r := httptest.NewRequest("GET", Sign(secret, "/photos/a.jpg?w=7"), nil)
	r.URL.Path = "/a.jpg"
	if p, err := signing().Parse(r); err != nil || p.Width != 7 {
		t.Errorf("%+v, %v", p, err)
	}
	r.RequestURI = "" // a request that was made by hand
	r.URL.Path = "/photos/a.jpg"
	if p, err := signing().Parse(r); err != nil || p.Width != 7 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestClientHints(t *testing.T) {
	for _, c := range []struct {
		query, headers string
		width, quality int
	}{
		{"", "", 0, 0},
		{"", "Sec-CH-Width: 1", 300, 0},
		{"", "Sec-CH-Width: 300", 300, 0},
		{"", "Sec-CH-Width: 301", 600, 0},
		{"", "Sec-CH-Width: 5000", 1200, 0},
		{"", "Sec-CH-Width: 999999999999999", 1200, 0},
		{"", "Width: 500", 600, 0},
		{"", "Width: 1000; Sec-CH-Width: 100", 300, 0},
		{"", "Sec-CH-Width: x; Width: 500", 600, 0},
		{"", "Sec-CH-Viewport-Width: 250; Sec-CH-DPR: 2", 600, 0},
		{"", "Sec-CH-Viewport-Width: 250; Sec-CH-DPR: 1.2", 300, 0},
		{"", "Sec-CH-Viewport-Width: 250; Sec-CH-DPR: 1.201", 600, 0},
		{"", "Sec-CH-Viewport-Width: 280; Sec-CH-DPR: 1.100000023841858", 600, 0}, // 308
		{"", "Viewport-Width: 250; DPR: 3; Sec-CH-DPR: 1", 300, 0},
		{"", "Viewport-Width: 250; DPR: 3", 1200, 0},
		{"", "Viewport-Width: 250", 300, 0},
		{"", "Viewport-Width: 999999; DPR: 999999", 1200, 0},
		{"", "Sec-CH-DPR: 2", 0, 0},
		{"", "Sec-CH-Width: 100; Sec-CH-DPR: 3", 300, 0}, // is in device pixels already
		// Nonsense.
		{"", "Sec-CH-Width: 0", 0, 0},
		{"", "Sec-CH-Width: -5", 0, 0},
		{"", "Sec-CH-Width: +5", 0, 0},
		{"", "Sec-CH-Width: 5.5", 0, 0},
		{"", "Sec-CH-Width: 5px", 0, 0},
		{"", "Sec-CH-Width: 0x5", 0, 0},
		{"", "Sec-CH-Width: 5, 6", 0, 0},
		{"", "Sec-CH-Width: 5; Sec-CH-Width: 6", 0, 0},
		{"", "Sec-CH-Width: 1234567890123456", 0, 0},
		{"", `Sec-CH-Width: "5"`, 0, 0},
		{"", "Viewport-Width: 200; DPR: 2.; Sec-CH-DPR: .5", 300, 0},
		{"", "Viewport-Width: 200; DPR: 0.0", 300, 0},
		{"", "Viewport-Width: 200; DPR: NaN", 300, 0},
		// Save-Data.
		{"", "Save-Data: on", 0, 40},
		{"", "Save-Data: ON ; Width: 300", 300, 40},
		{"", "Save-Data: off", 0, 0},
		{"", "Save-Data: on, on", 0, 0},
		// The URL counts more.
		{"?w=300", "Sec-CH-Width: 1000; Save-Data: on", 300, 40},
		{"?h=200", "Sec-CH-Width: 1000", 0, 0},
		{"?preset=thumb", "Sec-CH-Width: 1000; Save-Data: on", 120, 60},
		{"?preset=wide", "Save-Data: on", 1601, 40},
		{"?q=70", "Sec-CH-Width: 1000; Save-Data: on", 1200, 70},
		{"?dpr=2", "Sec-CH-Width: 250", 300, 0},
	} {
		r := httptest.NewRequest("GET", "/a.jpg"+c.query, nil)
		if c.headers != "" {
			for line := range strings.SplitSeq(c.headers, "; ") {
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Add(name, value)
			}
		}
		o := listed()
		if p, err := o.Parse(r); err != nil || o.ClientHints || p.Width != 0 && c.query == "" || p.Quality != 0 && c.query == "" {
			t.Errorf("hints are off: %+v, %v", p, err)
		}
		o.ClientHints = true
		p, err := o.Parse(r)
		if err != nil || p.Width != c.width || p.Quality != c.quality {
			t.Errorf("%s %s: %+v, %v; want %d, %d", c.query, c.headers, p, err, c.width, c.quality)
		}
		if p.Width != 0 && p.Fit == "" {
			t.Errorf("%s %s: no fit in %+v", c.query, c.headers, p)
		}
		// VaryOn are all that are looked at.
		for _, name := range o.VaryOn() {
			r.Header.Del(name)
		}
		with, _ := o.Parse(r)
		without, _ := listed().Parse(r)
		if with != without {
			t.Errorf("%s %s: depends on a header that is not named: %+v, %+v", c.query, c.headers, with, without)
		}
	}
	o := Options{ClientHints: true}
	r := httptest.NewRequest("GET", "/a.jpg", nil)
	r.Header.Set("Save-Data", "on")
	r.Header.Set("Width", "100")
	if p, err := o.Parse(r); err != nil || p != (Params{Quality: savingQuality}) {
		t.Errorf("without lists: %+v, %v", p, err)
	}
}

func TestHeadersOfHints(t *testing.T) {
	if o := listed(); o.AcceptCH() != "" || o.VaryOn() != nil {
		t.Error("hints are off")
	}
	o := Options{ClientHints: true}
	want := strings.Join(o.VaryOn(), ", ")
	if got := o.AcceptCH() + ", Save-Data"; got != want {
		t.Errorf("asks for %s, looks at %s", got, want)
	}
}

func TestCheck(t *testing.T) {
	good := signing()
	good.ClientHints = true
	for _, o := range []Options{{}, good, {Secret: secret, DPRs: []float64{2}}, {Qualities: []int{1, 100}}, {Heights: []int{MaxSide}, DPRs: []float64{1}}} {
		if faults := o.Check(); len(faults) != 0 {
			t.Errorf("%+v: %v", o, faults)
		}
	}
	many := make([]int, maxListed+1)
	for i := range many {
		many[i] = i + 1
	}
	for _, c := range []struct {
		o    Options
		want map[string]string // key to a part of the message
	}{
		{Options{Widths: []int{300, 0, -1, 16385, 300}}, map[string]string{"widths[1]": "0 is not", "widths[2]": "-1 is not", "widths[3]": "16384", "widths[4]": "twice"}},
		{Options{Heights: many}, map[string]string{"heights": "101 values"}},
		{Options{Qualities: []int{101, 0}}, map[string]string{"qualities[0]": "101", "qualities[1]": "0"}},
		{
			Options{Widths: []int{1}, Fits: []convert.Fit{"cover", "zoom", "cover", ""}},
			map[string]string{"fits[1]": `"zoom" is unknown: use contain, cover, fill, outside or pad`, "fits[2]": "twice", "fits[3]": "unknown"},
		},
		{Options{Widths: []int{1}, DPRs: []float64{0.5, 5, 1.23456, 2, 2}}, map[string]string{"dprs[0]": "0.5", "dprs[1]": "5", "dprs[2]": "decimals", "dprs[4]": "twice"}},
		{Options{Widths: []int{9000}, DPRs: []float64{1, 2}}, map[string]string{"dprs": "18000"}},
		{Options{Presets: map[string]Preset{"a": {Height: 9000}}, DPRs: []float64{2}}, map[string]string{"dprs": "18000"}},
		{Options{DPRs: []float64{2}, Fits: []convert.Fit{"cover"}}, map[string]string{"dprs": "nothing to apply it to", "fits": "nothing to apply it to"}},
		{Options{Secret: "short"}, map[string]string{"secret": "5 bytes"}},
		{Options{ClientHints: true}, map[string]string{"client_hints": "widths"}},
		{
			Options{Presets: map[string]Preset{"a b": {Width: 1}, "": {Width: 1}, "none": {Quality: 5}, "bad": {Width: -1, Height: 16385, Fit: "zoom", Quality: 101}}},
			map[string]string{
				"presets[a b]": "name of a preset", "presets[]": "name of a preset", "presets[none]": "without a size",
				"presets[bad].w": "-1", "presets[bad].h": "16385", "presets[bad].fit": "zoom", "presets[bad].q": "101",
			},
		},
	} {
		got := map[string]string{}
		for key, err := range c.o.Check() {
			got[key] = err.Error()
			if strings.Contains(err.Error(), c.want[key]) {
				got[key] = c.want[key]
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%+v: %s", c.o, d)
		}
	}
}

func TestTooManyPresets(t *testing.T) {
	o := Options{Presets: map[string]Preset{}}
	for i := range maxListed + 1 {
		o.Presets[strings.Repeat("a", i%maxName+1)+strings.Repeat("b", i/maxName)] = Preset{Width: 1}
	}
	if faults := o.Check(); faults["presets"] == nil {
		t.Errorf("%d presets: %v", len(o.Presets), faults)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"w=300&h=200&fit=cover", "preset=thumb&dpr=2.625", "w=300&w=1", "q=&s=0", "w=613&s=71a7", "dpr=1.5&w=%20", ";w=1&&=&s"} {
		f.Add(s, "400", "2.0", "on")
	}
	o := signing()
	o.ClientHints = true
	f.Fuzz(func(t *testing.T, query, width, dpr, save string) {
		r := httptest.NewRequest("GET", "/a.jpg", nil)
		r.URL.RawQuery = query
		r.RequestURI = "/a.jpg?" + query
		r.Header["Viewport-Width"] = []string{width}
		r.Header["Sec-Ch-Dpr"] = []string{dpr}
		r.Header["Save-Data"] = []string{save}
		p, err := o.Parse(r)
		if err != nil {
			if !errors.Is(err, ErrRefused) || p != (Params{}) || len(err.Error()) > 400 {
				t.Fatalf("%q: %+v, %v", query, p, err)
			}
			return
		}
		if p.Width < 0 || p.Width > MaxSide || p.Height < 0 || p.Height > MaxSide || p.Quality < 0 || p.Quality > 100 {
			t.Fatalf("%q: %+v", query, p)
		}
		// What may be asked for without a signature can be counted.
		if signed, _ := o.signed(r); !signed {
			sides := []int{0, 120, 80, 1601, 300, 600, 1200, 200, 400}
			for _, side := range []int{p.Width, p.Height} {
				found := false
				for _, s := range sides {
					for _, d := range []int{1000, 1500, 2000, 2625} {
						found = found || times(s, d) == side
					}
				}
				if !found {
					t.Fatalf("%q: a side of %d", query, side)
				}
			}
		}
		// The same again, signed and with other people's parameters.
		if !strings.Contains(query, "s=") && !strings.Contains(query, "#") {
			target := Sign(secret, "/a.jpg?"+query)
			_, signed, _ := strings.Cut(target, "?")
			if encoded := encode(query); encoded == query {
				r.URL.RawQuery, r.RequestURI = signed, target
				if again, err := o.Parse(r); err != nil || again != p {
					t.Fatalf("%q signed: %+v, %v, not %+v", query, again, err, p)
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, target := range []string{"/a.jpg", "/a.jpg?w=300&h=200&fit=cover&utm_source=x", Sign(secret, "/a.jpg?w=613")} {
		b.Run(target, func(b *testing.B) {
			o := signing()
			r := httptest.NewRequest("GET", target, nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := o.Parse(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
