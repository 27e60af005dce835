//go:build !linux

package admin

import "millrace/internal/ops/exposition"

// processMetrics adds nothing where there is no /proc.
func processMetrics(*exposition.Page) {}
