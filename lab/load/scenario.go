package load

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// A Scenario is a file of requests that belong together:
//
//	requests:
//	  - path: /login
//	    expect: [status 200]
//	    take: {token: 'body name="csrf" value="([^"]+)"'}
//	  - path: /login
//	    form: ["user={{user}}", "csrf={{token}}"]
//	    expect: [status 303]
type Scenario struct {
	Requests []Step `yaml:"requests"`
}

// ReadScenario reads one.
func ReadScenario(r io.Reader) ([]Step, error) {
	var s Scenario
	if err := yaml.NewDecoder(r, yaml.DisallowUnknownField()).Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s", yaml.FormatError(err, false, true))
	}
	if len(s.Requests) == 0 {
		return nil, errors.New("it has no requests: write them below the key requests")
	}
	return s.Requests, nil
}

// MaxRows bounds [Data].
const MaxRows = 1_000_000

// ReadData reads rows of values, separated by commas (RFC 4180). The first one has the
// names of the columns.
func ReadData(r io.Reader) (*Data, error) {
	rows, err := csv.NewReader(r).ReadAll()
	switch {
	case err != nil:
		return nil, err
	case len(rows) < 2:
		return nil, errors.New("it has no rows: write the names of the columns into the first line, and values below")
	case len(rows)-1 > MaxRows:
		return nil, fmt.Errorf("it has more than %d rows", MaxRows)
	}
	d := &Data{Columns: rows[0], Rows: rows[1:]}
	for i, name := range d.Columns {
		d.Columns[i] = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if name = d.Columns[i]; !isName(name) || name == number || slices.Contains(d.Columns[:i], name) {
			return nil, fmt.Errorf("the column %q has no name of letters and digits that only it has (number is taken)", name)
		}
	}
	return d, nil
}
