package params

import (
	"errors"
	"strings"
	"testing"

	"millrace/images/codec"
	"millrace/images/convert"
)

func TestOptions(t *testing.T) {
	for query, want := range map[string]Params{
		"?format=jpeg":                           {Format: codec.JPEG},
		"?w=300&h=200&fit=cover&gravity=ne":      {Width: 300, Height: 200, Fit: convert.Cover, Edit: convert.Edit{Gravity: "ne"}},
		"?w=300&h=200&fit=cover&gravity=0.5:1":   {Width: 300, Height: 200, Fit: convert.Cover, Edit: convert.Edit{Gravity: convert.Focus, Focus: [2]int{500, 1000}}},
		"?w=300&h=200&fit=pad&bg=ff0000":         {Width: 300, Height: 200, Fit: convert.Pad, Edit: convert.Edit{Background: "ff0000"}},
		"?rect=0,0,7,9&rotate=90&flip=hv&trim=5": {Edit: convert.Edit{Rect: [4]int{0, 0, 7, 9}, Rotate: 90, Flip: "hv", Trim: 5}},
		"?w=300&enlarge=1&blur=2.5":              {Width: 300, Fit: convert.Contain, Edit: convert.Edit{Enlarge: true, Blur: 250}},
		"?w=300&blur=2.5&dpr=2&pad=10":           {Width: 600, Fit: convert.Contain, Edit: convert.Edit{Blur: 500, Pad: [4]int{20, 20, 20, 20}}},
		"?pad=1,0,0,2&sharpen=0.35":              {Edit: convert.Edit{Pad: [4]int{1, 0, 0, 2}, Sharpen: 35}},
		"?grayscale=1&max_bytes=5000":            {MaxBytes: 5000, Edit: convert.Edit{Grayscale: true}},
		"?info":                                  {Format: convert.Info},
		"?info=7&lqip=":                          {}, // others' parameters
		"?lqip":                                  {Width: 32, Height: 32, Quality: 40, Fit: convert.Contain},
	} {
		got, err := parse(signing(), Sign(secret, "/a.jpg"+query))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", query, got, err, want)
		}
		if got.Changes() == (query == "?format=jpeg" || strings.HasPrefix(query, "?info")) {
			t.Errorf("%s: changes %t", query, got.Changes())
		}
	}
}

// Each value has one spelling, and options that contradict each other are refused, signed or not.
func TestOptionsRefused(t *testing.T) {
	for _, query := range []string{
		"format=", "format=JPEG", "format=gif", "format=png&max_bytes=5000", "format=plain", "format=info", "format=stripped",
		"rect=1,2,3", "rect=1,2,3,0", "rect=1,2,0,3", "rect=-1,0,3,3", "rect=01,0,3,3", "rect=1,2,3,4,5", "rect=1e2,0,3,3", "rect=0,0,1000000000,5",
		"rotate=0", "rotate=45", "rotate=360", "rotate=-90", "flip=", "flip=vh", "trim=0", "trim=101", "trim=1.5", "trim=+5",
		"gravity=n", "w=300&gravity=n", "w=300&h=200&gravity=n", "w=300&h=200&fit=fill&gravity=n", "w=300&h=200&fit=pad&gravity=entropy",
		"w=300&h=200&fit=cover&gravity=up", "w=300&h=200&fit=cover&gravity=0.5", "w=300&h=200&fit=cover&gravity=0.50:1", "w=300&h=200&fit=cover&gravity=2:0", "w=300&h=200&fit=cover&gravity=-0.1:0",
		"w=300&h=200&fit=cover&gravity=focus", "enlarge=1", "w=300&enlarge=0", "w=300&enlarge=true",
		"blur=0", "blur=0.2", "blur=1000000000", "blur=100.01", "blur=1.50", "blur=1.", "blur=.5", "blur=1.555", "blur=NaN", "blur=1&sharpen=1",
		"grayscale=2", "pad=0", "pad=2001", "pad=1,2", "pad=-1", "bg=red", "bg=FF0000", "bg=fff", "bg=ff00000",
		"max_bytes=0", "max_bytes=99", "max_bytes=1000000000", "max_bytes=1e4",
		"rotate=90&rotate=90", "info&w=300", "info&blurhash", "info&format=jpeg", "info&rotate=90", "lqip&w=300", "info&q=40", "lqip&lqip",
		"w=0", "w=1000000000", "h=0", "preset=thumb&rotate=90",
	} {
		p, err := parse(signing(), Sign(secret, "/a.jpg?"+query))
		if !errors.Is(err, ErrRefused) || p != (Params{}) {
			t.Errorf("%s: %+v, %v", query, p, err)
		}
	}
}

// Without a signature only what is listed is done, each as it is listed.
func TestOptionsListed(t *testing.T) {
	o := listed()
	o.Options = []string{"rotate=90", "info", "gravity=n"}
	o.Presets["round"] = Preset{Width: 50, Height: 50, Fit: convert.Cover, Options: "gravity=attention&sharpen=1"}
	if faults := o.Check(); len(faults) > 0 {
		t.Fatal(faults)
	}
	for query, ok := range map[string]bool{
		"rotate=90": true, "w=300&rotate=90": true, "info": true, "w=300&h=200&fit=cover&gravity=n": true, "preset=round&dpr=2": true,
		"rotate=180": false, "blurhash": false, "w=300&h=200&fit=cover&gravity=s": false, "format=png": false,
	} {
		if _, err := parse(o, "/a.jpg?"+query); (err == nil) != ok {
			t.Errorf("%s: %v", query, err)
		}
	}
	if p, _ := parse(o, "/a.jpg?preset=round&dpr=2"); p.Edit.Sharpen != 200 || p.Width != 100 || p.Edit.Gravity != convert.Attention {
		t.Errorf("%+v", p)
	}
	for _, wrong := range []Options{
		{Options: []string{"rotate=45"}},
		{Options: []string{"rotate=90&flip=h"}},
		{Options: []string{"zoom=2"}},
		{Options: []string{"rotate=90", "rotate=90"}},
		{Presets: map[string]Preset{"a": {Options: "gravity=n"}}},
		{Presets: map[string]Preset{"a": {Width: 5, Options: "gravity"}}},
		{Presets: map[string]Preset{"a": {}}},
	} {
		if len(wrong.Check()) == 0 {
			t.Errorf("%+v is taken", wrong)
		}
	}
}

// A key tells apart what is not the same.
func TestKeysOfOptions(t *testing.T) {
	seen := map[string]string{}
	for _, query := range []string{
		"w=300", "w=300&blur=1", "w=300&sharpen=1", "w=300&pad=1", "w=300&pad=1,1,1,2", "w=300&trim=1", "w=300&enlarge=1", "w=300&grayscale=1",
		"w=300&rotate=90", "w=300&rotate=180", "w=300&flip=h", "w=300&flip=v", "w=300&bg=000000", "w=300&max_bytes=1000", "w=300&rect=0,0,5,5", "w=300&rect=0,0,5,6",
		"w=300&h=200&fit=cover&gravity=n", "w=300&h=200&fit=cover", "w=300&h=200&fit=cover&gravity=0:0", "w=300&h=200&fit=cover&gravity=0:0.001", "w=300&h=200&fit=pad",
	} {
		p, err := parse(signing(), Sign(secret, "/a.jpg?"+query))
		if err != nil {
			t.Fatal(query, err)
		}
		if other := seen[p.Key()]; other != "" || p.Key() == "" {
			t.Errorf("%s and %s have the key %q", query, other, p.Key())
		}
		seen[p.Key()] = query
	}
}

// FuzzOptions reads options from a text and writes them again: the same.
func FuzzOptions(f *testing.F) {
	for _, s := range []string{"rotate=90&flip=h", "gravity=0.5:0.25", "blur=2.5&pad=1,2,3,4&bg=00ff00", "rect=0,0,5,5&trim=3&max_bytes=500", "info", "format=png&enlarge=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseOptions(text)
		if err != nil {
			return
		}
		var parts []string
		for _, o := range options() {
			if s := o.text(&p); s != "" && !o.alone {
				parts = append(parts, o.name+"="+s)
			}
		}
		if convert.IsFact(p.Format) || p.Quality > 0 {
			return
		}
		again, err := parseOptions(strings.Join(parts, "&"))
		if err != nil || again != p {
			t.Fatalf("%q: %+v; written as %q: %+v, %v", text, p, parts, again, err)
		}
	})
}
