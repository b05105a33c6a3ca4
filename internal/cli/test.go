package cli

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/play/suite"
)

func newTest(c *console) *cobra.Command {
	f := &suite.Config{}
	cmd := &cobra.Command{
		Use:   "test FILE|FOLDER...",
		Short: "Play the tests of policies: files named *.test.yaml",
		Long: "Play the tests of policies, without a server: each test is a run of its own, whose\n" +
			"steps say what is called, what the server answers, and what is expected.",
		Example: "  fsm-proxy test files.test.yaml\n" +
			"  fsm-proxy test policies/ --coverage --min-coverage 80",
		ValidArgsFunction: policiesThenCommand(math.MaxInt),
		RunE:              func(_ *cobra.Command, args []string) error { return f.Run(c.out, args) },
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "print the tests that pass, too")
	cmd.Flags().StringVar(&f.Only, "run", "", "play the tests alone whose name matches `REGEXP`")
	cmd.Flags().StringVar(&f.JUnit, "junit", "", "write a JUnit report to `FILE`")
	cmd.Flags().BoolVar(&f.Coverage, "coverage", false, "print what no test has seen: states, edges, and guards true and false")
	cmd.Flags().Float64Var(&f.MinCoverage, "min-coverage", 0, "fail where less than `PERCENT` of a policy was seen")
	return cmd
}
