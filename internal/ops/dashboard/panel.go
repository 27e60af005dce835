package dashboard

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"millrace/internal/ops/chart"
)

// A Unit says what a column's figures are.
type Unit string

// The units. Figures are float64: shares from 0 to 1, durations in seconds. Moments
// are [time.Time], everything else is text.
const (
	Text     Unit = ""
	Count    Unit = "count"
	Rate     Unit = "per_second"
	Bytes    Unit = "bytes"
	ByteRate Unit = "bytes_per_second"
	Share    Unit = "share"
	Seconds  Unit = "seconds"
	Moment   Unit = "time"
)

// A Column of a panel.
type Column struct {
	Key  string `json:"key"`  // in JSON and CSV
	Name string `json:"name"` // on the page
	Unit Unit   `json:"unit,omitempty"`
	// Hidden: only programs are told.
	Hidden bool `json:"hidden,omitempty"`
}

// Number reports whether it is set to the right.
func (c Column) Number() bool { return c.Unit != Text && c.Unit != Moment }

// A Level says how bad a row is.
type Level string

// The levels, from good to bad.
const (
	Fine Level = ""
	Warn Level = "warn"
	Bad  Level = "bad"
)

// A Row has a value for each column: a string, a float64, a [time.Time], or nil where
// there is none.
type Row struct {
	Level  Level
	Values []any
}

// A Panel is a table that can be read as a page, as JSON and as CSV.
type Panel struct {
	ID    string // in its address
	Title string
	Note  string // what has to be known to read it
	// Empty is said in place of rows where there are none. Panels without it and
	// without rows are left out of the page.
	Empty   string
	Columns []Column
	Rows    []Row
	Links   []string // of the rows' first columns; nil: there are none
	Cards   []card   // of the first rows, which are then not in a table
	Heat    *heat
}

// Shown reports whether a panel has anything to show.
func (p Panel) Shown() bool { return len(p.Rows) > 0 || p.Empty != "" }

// Value is that of a row in a column, as text.
func (p Panel) Value(row Row, key string) string {
	for i, c := range p.Columns {
		if c.Key == key {
			return Show(c.Unit, row.Values[i])
		}
	}
	return ""
}

// panelJSON is a Panel as JSON: the rows are objects, whose order of keys is that
// of the columns.
type panelJSON struct {
	ID      string           `json:"panel"`
	Title   string           `json:"title"`
	Note    string           `json:"note,omitempty"`
	Empty   string           `json:"empty,omitempty"`
	Columns []Column         `json:"columns"`
	Rows    []map[string]any `json:"rows"`
}

// levelKey is where JSON has a row's level.
const levelKey = "level"

// MarshalJSON implements [json.Marshaler].
func (p Panel) MarshalJSON() ([]byte, error) {
	j := panelJSON{p.ID, p.Title, p.Note, p.Empty, p.Columns, make([]map[string]any, 0, len(p.Rows))}
	for _, row := range p.Rows {
		m := make(map[string]any, len(row.Values)+1)
		for i, v := range row.Values {
			if t, ok := v.(time.Time); ok && t.IsZero() || !sound(v) {
				v = nil
			}
			m[p.Columns[i].Key] = v
		}
		if row.Level != Fine {
			m[levelKey] = string(row.Level)
		}
		j.Rows = append(j.Rows, m)
	}
	return json.Marshal(j) //nolint:wrapcheck // its caller is json.Marshal
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Panel) UnmarshalJSON(b []byte) error {
	var j panelJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("reading a panel: %w", err)
	}
	*p = Panel{ID: j.ID, Title: j.Title, Note: j.Note, Empty: j.Empty, Columns: j.Columns}
	for _, m := range j.Rows {
		row := Row{}
		if l, ok := m[levelKey].(string); ok {
			row.Level = Level(l)
		}
		for _, c := range p.Columns {
			v := m[c.Key]
			if text, ok := v.(string); ok && c.Unit == Moment {
				at, err := time.Parse(time.RFC3339Nano, text)
				if err != nil {
					return fmt.Errorf("reading a panel: %s: %w", c.Key, err)
				}
				v = at
			}
			row.Values = append(row.Values, v)
		}
		p.Rows = append(p.Rows, row)
	}
	return nil
}

// sound reports whether JSON can say a value.
func sound(v any) bool {
	f, ok := v.(float64)
	return !ok || !math.IsNaN(f) && !math.IsInf(f, 0)
}

// WriteCSV writes the columns' keys and then the rows (RFC 4180).
func (p Panel) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	record := make([]string, len(p.Columns))
	for i, c := range p.Columns {
		record[i] = c.Key
	}
	_ = out.Write(record) // Flush keeps the error
	for _, row := range p.Rows {
		for i, v := range row.Values {
			record[i] = csvField(v)
		}
		_ = out.Write(record)
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

// csvField is a value without its unit. A text that a spreadsheet would run as a
// formula gets a quote before it: paths and hosts are chosen by clients (OWASP, CSV
// Injection).
func csvField(v any) string {
	switch v := v.(type) {
	case string:
		if v != "" && strings.ContainsRune("=+-@\t\r", rune(v[0])) {
			return "'" + v
		}
		return v
	case float64:
		if sound(v) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	case time.Time:
		if !v.IsZero() {
			return v.UTC().Format(time.RFC3339Nano)
		}
	}
	return ""
}

// Show is a value as a person reads it.
func Show(u Unit, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Time:
		switch ago := time.Since(v); {
		case v.IsZero():
			return ""
		case ago >= 0 && ago < 12*time.Hour:
			return v.Local().Format(time.TimeOnly)
		}
		return v.Local().Format(time.DateTime)
	case float64:
		if !sound(v) {
			return ""
		}
		return figure(u, v)
	}
	return ""
}

func figure(u Unit, v float64) string {
	switch u {
	case Rate:
		return chart.Figure(v, "1/s")
	case Bytes:
		return chart.Figure(v, "bytes")
	case ByteRate:
		return chart.Figure(v, "bytes/s")
	case Share:
		return chart.Figure(v*100, "%")
	case Seconds:
		if v >= 120 {
			return time.Duration(v * float64(time.Second)).Round(time.Second).String()
		}
		return chart.Figure(v, "s")
	}
	return grouped(v)
}

// grouped writes a whole number with a comma between groups of three digits.
func grouped(v float64) string {
	digits := strconv.FormatFloat(math.Abs(math.Round(v)), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if v <= -0.5 {
		return "−" + digits
	}
	return digits
}

// ratio is part of whole, or nil of nothing.
func ratio(part, whole float64) any {
	if whole == 0 {
		return nil
	}
	return part / whole
}

// took is a duration in seconds, or nil for none.
func took(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Seconds()
}
