/** Where the repository lies: what runs is compiled elsewhere. */
export const root = process.env["LEASEHOLD_BENCH_ROOT"] ?? process.cwd()
