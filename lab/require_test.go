package lab

import (
	"strings"
	"testing"

	"millrace/lab/record"
)

func loaded(values map[string]float64) *record.Result {
	return &record.Result{
		Kind: record.KindLoad, Title: "a load", Metrics: []record.Metric{{Key: "latency_p99_ns", Unit: "ns"}},
		Samples: []record.Sample{{Values: values}},
	}
}

func TestRequire(t *testing.T) {
	now := map[string]float64{"latency_p99_ns": 150e6, "latency_p99.99_ns": 300e6, "failed": 0.002, "requests_per_second": 1000, "errors": 5}
	then := map[string]float64{"latency_p99_ns": 140e6, "requests_per_second": 1200}
	for text, met := range map[string]bool{
		"p99 < 200ms": true, "p99 < 0.1s": false, "p99>100 ms": true, "p99.99 < 250ms": false, "latency_p99_ns < 151ms": true,
		"errors < 0.1 %": false, "errors<0.3%": true, "errors < 0.003": true, "rate > 999": true, "rate > 1000": false,
		"p99 < +10 %": true, "p99 < +5 %": false, "rate > -20%": true, "rate > -10 %": false,
		"cpu < 1ms":      false, // was not measured
		"p99.99 < +10 %": false, // was not, before
	} {
		r, err := ParseRequirement(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		res := loaded(now)
		unmet := Require(res, []Requirement{r}, loaded(then))
		if got := res.Requirements[0]; got.Met != met || (unmet == 0) != met || got.Text != text || got.Found == "" {
			t.Errorf("%s: %+v, %d not met", text, got, unmet)
		}
		if table := res.Tables[1]; len(table.Rows) != 1 || strings.Join(table.Rows[0][1:], " ") != "140 ms 150 ms +7.1 %" {
			t.Errorf("against the earlier result: %v", table.Rows)
		}
	}
	for text, says := range map[string]string{"p99": "no < or >", "p98 < 1s": "figure", "p99 < 5": "bound", "p99 < 5 %": "share", "errors < x": "bound", "rate > NaN": "bound"} {
		if _, err := ParseRequirement(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
