/**
 * Milliseconds that this process has had of the processors so far. Where something is to be quick, they tell more than a clock: they
 * stand still while other processes are at work.
 */
export const cpuMillis = (): number => {
  const { system, user } = process.cpuUsage()
  return (user + system) / 1_000
}
