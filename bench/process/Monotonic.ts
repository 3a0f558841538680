/** The machine's monotonic clock in milliseconds: the same in all of its processes. */
export const monotonic = (): number => Number(process.hrtime.bigint()) / 1e6
