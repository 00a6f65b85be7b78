# redlock-rb as a peer, with the distribution's redis gem: see redlock_peers.py for the lines that it reads and writes.
require 'redlock'

client = Redlock::Client.new(ARGV[0].split(',').map { |a| "redis://#{a}" }, retry_count: 0, redis_timeout: 30)
held = nil
STDOUT.sync = true
STDIN.each_line do |line|
  words = line.split
  begin
    case words[0]
    when 'lock'
      info = client.lock(words[1], words[2].to_i)
      held = info if info
      puts(info ? 'held' : 'refused')
    when 'extend'
      info = client.lock(held[:resource], words[1].to_i, extend: held, extend_only_if_locked: true)
      puts(info ? 'held' : 'lost')
    else
      client.unlock(held)
      puts 'done' # it does not tell
    end
  rescue StandardError => e
    puts "error #{e.class} #{e.message.tr("\n", ' ')}"
  end
end
