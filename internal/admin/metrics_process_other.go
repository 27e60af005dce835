//go:build !linux

package admin

import "millrace/internal/exposition"

// processMetrics adds nothing where there is no /proc.
func processMetrics(*exposition.Page) {}
